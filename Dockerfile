# The worker's image. From the root of the checkout, on a host with a GPU:
#   docker build --build-arg BASE=nvcr.io/nvidia/pytorch:YY.MM-py3 --build-arg EXTRAS=torch,onnx --tag servegrid .
# What the base brings (its torch, its TensorFlow, ...) stays as it is: deployments/image_requirements.py.
# A secret `pip`, a pip.conf, is read while packages are installed, and is in no layer. docs/containers.md tells the rest.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
ARG EXTRAS=torch,onnx
WORKDIR /src
# NVIDIA's images hold pip to every version that they have (PIP_CONSTRAINT): the project needs newer ones of some. They
# go into the venv, and the frameworks are pinned below.
ENV SERVEGRID_ROOT=/opt/servegrid SERVEGRID_HOME=/var/lib/servegrid PIP_CONSTRAINT=
COPY deployments/image_requirements.py pyproject.toml constraints.txt ./
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 image_requirements.py pyproject.toml constraints.txt --extras "${EXTRAS}" --output /tmp \
    && python3 -m venv --system-site-packages /opt/servegrid/venv \
    && /opt/servegrid/venv/bin/pip install --no-cache-dir \
       --constraint /tmp/constraints.txt --requirement /tmp/requirements.txt
COPY README.md ./
COPY flows flows
COPY tasks tasks
COPY servegrid servegrid
COPY models /opt/servegrid/models
COPY gpu_profiles /opt/servegrid/gpu_profiles
COPY triton_releases.yaml /opt/servegrid/
COPY deployments/prefect.yaml /opt/servegrid/deployments/
# The command that installs the server exits with 2 where it could not run it: without libpython, for one.
ARG TOOLS=--install-server
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    /opt/servegrid/venv/bin/pip install --no-cache-dir --no-deps . \
    && ln -s /opt/servegrid/venv/lib/python3*/site-packages/servegrid /opt/servegrid/servegrid \
    && /opt/servegrid/venv/bin/servegrid doctor ${TOOLS}

FROM ${BASE}
ARG UID=10001
RUN useradd --uid "${UID}" --create-home servegrid \
    && install --directory --owner=servegrid /var/lib/servegrid /var/lib/servegrid/store \
       /var/lib/servegrid/results /var/lib/servegrid/sources
COPY --from=build --chown=servegrid /var/lib/servegrid /var/lib/servegrid
COPY --from=build /opt/servegrid /opt/servegrid
ENV PATH=/opt/servegrid/venv/bin:${PATH} \
    SERVEGRID_ROOT=/opt/servegrid \
    SERVEGRID_HOME=/var/lib/servegrid \
    SERVEGRID_RESULTS=/var/lib/servegrid/results \
    SERVEGRID_SOURCES=/var/lib/servegrid/sources \
    PREFECT_LOGGING_EXTRA_LOGGERS=servegrid \
    PREFECT_WORKER_WEBSERVER_HOST=127.0.0.1 \
    PREFECT_WORKER_WEBSERVER_PORT=8080 \
    DO_NOT_TRACK=1
USER servegrid
WORKDIR /var/lib/servegrid
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD \
    ["python3", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:%s/health' % os.environ['PREFECT_WORKER_WEBSERVER_PORT'], timeout=4)"]
# PREFECT_API_URL names the server; `--entrypoint servegrid` has the command instead.
ENTRYPOINT ["prefect", "worker", "start", "--with-healthcheck"]
CMD ["--pool", "gpu-cpu", "--limit", "1"]
