"""The image of a hosted cell: a Dockerfile and locked wheels. It installs nothing when it starts."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from servegrid.campaign.columns import parse_json
from servegrid.campaign.results import Row
from servegrid.domain.releases import image
from servegrid.formats import FORMATS
from servegrid.servers import embedded

DOCKERFILE = "Dockerfile"
REQUIREMENTS = "requirements.txt"
USER = 10001


def write_image(folder: Path, row: Row) -> None:
    """Dockerfile and requirements.txt of the cell of a row.

    The server is the measured one: that of the wheel, on the Python that ran it, or NVIDIA's image.
    """
    own = row["server"] in (None, "embedded")
    wheels = _closure(pins(row)) if own else pins(row)
    lines = [f"{name}=={version}\n" for name, version in sorted(wheels.items())]
    (folder / REQUIREMENTS).write_text("".join(lines), encoding="utf-8")
    python = ".".join(str(parse_json(row["environment"])["python"]).split(".")[:2])
    text = _EMBEDDED.format(python=python, wheel=embedded.WHEEL) if own else _NVIDIA
    base = f"python:{python}-slim" if own else image(row["triton_release"])
    server = _SERVER if own else ["tritonserver"]
    command = json.dumps([*server, "--model-repository=/models", "--disable-auto-complete-config"])
    (folder / DOCKERFILE).write_text(
        _DOCKERFILE.format(base=base, install=text, user=USER, command=command), encoding="utf-8"
    )


def pins(row: Row) -> dict[str, str]:
    """The libraries of the cell's session, by the names and versions of PyPI.

    PyPI has no local versions (2.13.0+cpu), and ONNX Runtime for GPUs under a name of its own.
    """
    used = parse_json(row["versions"])
    on_gpu = {"onnxruntime": "onnxruntime-gpu"} if device_kind(row) == "gpu" else {}
    return {
        on_gpu.get(name, name): used[name].partition("+")[0]
        for name in FORMATS[row["format"]].libraries
        if name in used
    }


def device_kind(row: Row) -> str | None:
    """Where the cell's instances ran: cpu or gpu."""
    kind: str | None = parse_json(row["dynamic"]).get("device_kind")
    return kind


def _closure(pinned: dict[str, str]) -> dict[str, str]:
    """The libraries with numpy and all that they need, in the versions that are installed here. One that is
    not installed here in its version has its pin alone, and pip chooses what it needs."""
    found: dict[str, str] = {canonicalize_name(name): version for name, version in pinned.items()}
    waiting = ["numpy", *(name for name, version in found.items() if _version(name) == version)]
    seen: set[str] = set()
    while waiting:
        name = canonicalize_name(waiting.pop())
        version = _version(name)
        if name in seen or version is None:
            continue
        seen.add(name)
        found.setdefault(name, version)
        waiting += _needs(name)
    return found


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def _needs(name: str) -> Iterator[str]:
    """The distributions that a distribution needs here, without extras."""
    for text in importlib.metadata.requires(name) or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name


_SERVER = ["/opt/wheel/pytriton/tritonserver/bin/tritonserver", "--backend-directory=/opt/backends"]
_DOCKERFILE = """# The image that serves this cell: docker build --tag NAME .
# A secret `pip`, a pip.conf, is read while packages are installed, and is in no layer.
ARG BASE={base}
FROM ${{BASE}}
ENV PIP_CONSTRAINT= PIP_NO_CACHE_DIR=1
COPY requirements.txt /opt/requirements.txt
{install}
COPY --chown={user} model_repository /models
USER {user}
EXPOSE 8000 8001 8002
CMD {command}
"""
_NVIDIA = """RUN --mount=type=secret,id=pip,target=/etc/pip.conf \\
    pip install --only-binary :all: --requirement /opt/requirements.txt"""
_EMBEDDED = """# The environment comes first on PATH: the Python backend's stub takes its modules from there.
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \\
    python3 -m venv /opt/venv \\
    && pip install --only-binary :all: --requirement /opt/requirements.txt \\
    && pip install --no-deps --target /opt/wheel {wheel} \\
    && mkdir -p /opt/backends/python \\
    && ln -s /opt/wheel/pytriton/tritonserver/backends/python/libtriton_python.so \\
       /opt/wheel/pytriton/tritonserver/backends/python/triton_python_backend_utils.py \\
       /opt/wheel/pytriton/tritonserver/python_backend_stubs/{python}/triton_python_backend_stub \\
       /opt/backends/python/"""
