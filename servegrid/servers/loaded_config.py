"""Checks that the model which a server has loaded is the cell's."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format
from tritonclient.grpc import model_config_pb2 as pb
from tritonclient.utils import InferenceServerException

from servegrid.domain.errors import StepError, UnsupportedError
from servegrid.servers.connection import TIMEOUT_S


def check_loaded(client: Any, model: str, config: str, *, log: str) -> None:
    """Compare the server's config of `model` with the cell's (JSON), in the fields that a client can see.

    Raises:
        UnsupportedError: the model is not loaded, or its config differs.
        StepError: the server does not answer.
    """
    wanted = json_format.Parse(config, pb.ModelConfig())
    try:
        if not client.is_model_ready(model, client_timeout=TIMEOUT_S):
            raise UnsupportedError(f"the server loads no models on request, and {model} is not loaded there")
        found = client.get_model_config(model, client_timeout=TIMEOUT_S).config
    except InferenceServerException as error:
        raise StepError(f"the server did not answer: {error}", log=log) from error
    there, ours = _facts(found), _facts(wanted)
    if different := [f"{name} {there[name]}, not {ours[name]}" for name in ours if ours[name] != there[name]]:
        raise UnsupportedError(
            f"the server loads no models on request, and the {model} that is loaded there has "
            + "; ".join(different)
        )


def _facts(config: Any) -> dict[str, Any]:
    batcher = config.dynamic_batching
    return {
        "backend": config.backend,
        "session": _session(config),
        "max_batch_size": config.max_batch_size,
        "instances": sum(group.count for group in config.instance_group),
        "preferred_batch_size": list(batcher.preferred_batch_size),
        "max_queue_delay_microseconds": batcher.max_queue_delay_microseconds,
        "dynamic batching": config.HasField("dynamic_batching"),
        "inputs": _tensors(config.input),
        "outputs": _tensors(config.output),
    }


def _session(config: Any) -> str | None:
    """The format's folder, which earlier versions wrote as `onnx_session`."""
    if "session" not in config.parameters:
        return None
    return str(config.parameters["session"].string_value.removesuffix("_session"))


def _tensors(tensors: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {t.name: (pb.DataType.Name(t.data_type), tuple(t.dims)) for t in tensors}
