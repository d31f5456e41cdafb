"""Loading and unloading models of a running server, over gRPC."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from servegrid.domain.errors import StepError
from servegrid.host import proc
from servegrid.servers.connection import TIMEOUT_S

POLL_S = 0.02


def load(
    client: Any,
    model: str,
    config: str,
    *,
    timeout_s: float,
    log: str,
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Load `model` with `config` (JSON), after unloading a loaded one; from `files` (place in the model's
    folder -> content) where the server has no repository of ours.

    Raises:
        StepError: the server refused or took longer than `timeout_s`.
    """
    try:
        unload(client, model, timeout_s=timeout_s)
        client.load_model(model, config=config, files=files, client_timeout=timeout_s)
    except InferenceServerException as error:
        raise StepError(f"the server did not load {model}: {error}{_reason(model, log)}", log=log) from error


def unload(client: Any, model: str, *, timeout_s: float) -> None:
    """Unload `model` and wait until it is gone; the server answers earlier.

    Raises:
        InferenceServerException: the server refused, or the model was not gone after `timeout_s`.
    """
    if not client.is_model_ready(model, client_timeout=TIMEOUT_S):
        return
    client.unload_model(model, client_timeout=timeout_s)
    deadline = time.monotonic() + timeout_s
    while _state(client, model) in ("READY", "UNLOADING"):
        if time.monotonic() > deadline:
            raise InferenceServerException(f"{model} was not unloaded within {timeout_s:g} s")
        time.sleep(POLL_S)


def unload_all(url: str, *, timeout_s: float) -> None:
    """Unload all models of a server, which then stops faster: with models loaded it checks them once a
    second. A server that no longer answers is left alone."""
    with triton.InferenceServerClient(url) as client:
        try:
            for model in client.get_model_repository_index(client_timeout=timeout_s).models:
                unload(client, model.name, timeout_s=timeout_s)
        except InferenceServerException:
            return


def _reason(model: str, log: str) -> str:
    """Why a config was refused, from the server's log: its answer does not contain the reason."""
    lines = [line for line in proc.tail(Path(log)).splitlines() if f"model directory '{model}'" in line]
    return f"\n{lines[-1]}" if lines else ""


def _state(client: Any, model: str) -> str:
    for entry in client.get_model_repository_index(client_timeout=TIMEOUT_S).models:
        if entry.name == model:
            return str(entry.state)
    return ""
