"""Finds out by requests what a running Triton can do."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import re
import uuid
from typing import Any

import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from servegrid.domain.errors import UserError
from servegrid.domain.server import ServerChoice
from servegrid.domain.values import Value
from servegrid.servers.connection import connect

log = logging.getLogger("servegrid")

PROBE_TIMEOUT_S = 10.0
LOAD_S = 30.0
UNLOAD_S = 60.0
TOO_LATE = "StatusCode.DEADLINE_EXCEEDED"
TENSOR = {"data_type": "TYPE_FP32", "dims": [1]}
EMPTY_MODEL = b"class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
NO_BACKEND = re.compile(r"unable to find (backend library|'libtriton_)")
"""In the message about a backend that is not there (Triton 22.12 to 26.06). A backend that is there can
answer that it is "unable to find '.../1/model.pt' for model instance"."""
BACKENDS = ("onnxruntime", "pytorch", "tensorrt", "tensorflow", "python")


class Probed(Value):
    """Version and backends of a server; `control`: whether it loads models on request; `loaded`: the models
    that are; `shared_memory`: whether a region of this host's /dev/shm is one of its own."""

    version: str
    control: bool
    backends: tuple[str, ...]
    loaded: tuple[str, ...]
    shared_memory: bool

    @property
    def lacks(self) -> list[str]:
        """What the server cannot do, in words."""
        found = []
        if not self.control:
            found.append("it loads no models on request: what is loaded is measured, as it is")
        if not self.shared_memory:
            found.append("it does not see this host's shared memory: tensors travel in the requests")
        return found


def probe(choice: ServerChoice) -> Probed:
    """Ask the server of `choice.url`.

    Raises:
        UserError: it does not answer, or refuses to.
    """
    with connect(choice.address, choice.channel) as client:
        try:
            version = str(client.get_server_metadata(client_timeout=PROBE_TIMEOUT_S).version)
            statistics = client.get_inference_statistics(client_timeout=PROBE_TIMEOUT_S).model_stats
            loaded = tuple(sorted({entry.name for entry in statistics}))
            control = _has_control(client)
            backends = _backends_by_loading(choice) if control else _backends_in_use(client, loaded)
        except InferenceServerException as error:
            raise UserError(
                f"no Triton answers at {choice.url}: {error} (a gRPC port? grpcs:// for TLS? a ca_file or "
                "headers_file?)"
            ) from error
        return Probed(
            version=version,
            control=control,
            backends=backends,
            loaded=loaded,
            shared_memory=_shares_memory(client),
        )


def _name() -> str:
    """A name that no model and no region has yet."""
    return f"servegrid_probe_{uuid.uuid4().hex}"


def _has_control(client: Any) -> bool:
    """Whether model control is explicit: only then is unloading accepted, and without effect for an unknown
    model."""
    try:
        client.unload_model(_name(), client_timeout=PROBE_TIMEOUT_S)
    except InferenceServerException:
        return False
    return True


@functools.cache
def _backends_by_loading(choice: ServerChoice) -> tuple[str, ...]:
    """Backends found by loading a tiny model with each, as no request lists them; once in a process, as the
    server is not ours."""
    with connect(choice.address, choice.channel) as client:
        return tuple(backend for backend in BACKENDS if _has_backend(client, backend, choice))


def _has_backend(client: Any, backend: str, choice: ServerChoice) -> bool:
    """Whether a tiny model loads with the backend, or fails for another reason than a missing backend.

    The probe's file is a model for the Python backend only, where an invalid model.py makes the load hang
    (2.51); the other backends refuse it. A backend without an answer in time counts as absent."""
    name = _name()
    config = {"name": name, "backend": backend, "max_batch_size": 1}
    if backend == "tensorflow":
        config["platform"] = "tensorflow_savedmodel"  # without it the config is refused before
    config |= {"input": [{"name": "x", **TENSOR}], "output": [{"name": "y", **TENSOR}]}
    files = {"file:1/model.py": EMPTY_MODEL}
    try:
        client.load_model(name, config=json.dumps(config), files=files, client_timeout=LOAD_S)
    except InferenceServerException as error:
        if error.status() == TOO_LATE:
            log.warning(
                "%s did not say within %g s whether it has the %s backend: it counts as absent",
                *(choice.url, LOAD_S, backend),
            )
            return False
        return not NO_BACKEND.search(str(error))
    finally:
        _take_away(client, name, choice)
    return True


def _take_away(client: Any, name: str, choice: ServerChoice) -> None:
    """Unload a probe's model, even while it loads: the server handles one request after the other."""
    try:
        client.unload_model(name, client_timeout=UNLOAD_S)
    except InferenceServerException as error:
        log.warning("%s: the probe's model %s may have stayed: unload it there (%s)", choice.url, name, error)


def _backends_in_use(client: Any, loaded: tuple[str, ...]) -> tuple[str, ...]:
    configs = [client.get_model_config(name, client_timeout=PROBE_TIMEOUT_S).config for name in loaded]
    return tuple(sorted({config.backend for config in configs if config.backend}))


def _shares_memory(client: Any) -> bool:
    """Whether the server opens a region of shared memory that was just created here, under a unique name."""
    name = _name()
    region = shm.create_shared_memory_region(name, f"/{name}", 64)
    try:
        client.register_system_shared_memory(name, f"/{name}", 64, client_timeout=PROBE_TIMEOUT_S)
        client.unregister_system_shared_memory(name, client_timeout=PROBE_TIMEOUT_S)
    except InferenceServerException:
        return False
    finally:
        with contextlib.suppress(shm.SharedMemoryException):
            shm.destroy_shared_memory_region(region)
    return True
