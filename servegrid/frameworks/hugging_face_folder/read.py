"""The step that makes a model folder of a Hugging Face folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from pydantic import ValidationError

from servegrid.domain.arrays import Arrays
from servegrid.domain.errors import UnsupportedError
from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import TRITON_DTYPES, Interface, Tensor
from servegrid.domain.yaml_files import explain
from servegrid.frameworks import file_plugin, hugging_face_plugin
from servegrid.frameworks.fields import HuggingFaceJob
from servegrid.frameworks.hugging_face_folder.samples import made_up
from servegrid.frameworks.hugging_face_folder.spec import Attention, Found, make_spec
from servegrid.frameworks.hugging_face_plugin import model as networks
from servegrid.frameworks.hugging_face_plugin.processing import Processor, read_samples
from servegrid.frameworks.model_files.model_file import one_line
from servegrid.frameworks.torch_network import TorchNetwork

CHECKPOINT, PROCESSOR = "checkpoint", "processor"
"""Folders below `data/` of the model folder."""
SEQUENCE_AXES = 2
"""An input with a batch and one more axis is a sequence, whose length is free."""


def read_hugging_face(job: HuggingFaceJob) -> None:
    """`model.yaml`, the Python files of `hugging_face_plugin`, and `data/` with the checkpoint, the files of
    tokenizer and processors, and the samples.

    Raises:
        UnsupportedError: why the folder or the samples cannot be used, in one line.
    """
    fields, folder = job.fields, job.inputs["file"]
    for name in hugging_face_plugin.FILES:
        shutil.copy(hugging_face_plugin.TEMPLATE / name, job.output / name)
    shutil.copy(file_plugin.TEMPLATE / "dataloader.py", job.output / "dataloader.py")
    data = job.output / "data"
    _copy(folder, data / CHECKPOINT, fields.checkpoint)
    _copy(folder, data / PROCESSOR, fields.processor)
    network = _tried("", networks.load_network, str(data / CHECKPOINT), fields.auto_class)
    names = networks.arguments(network)
    processor: Processor = _tried("its tokenizer or processor: ", Processor, data / PROCESSOR, names)
    given = job.inputs.get("samples")
    if given is None:
        samples = made_up(processor, network.config, pairs=fields.task == "question-answering")
    else:
        samples = _tried(f"--samples {given}: ", read_samples, given)
    x: Arrays = _tried(f"--samples {given}: ", processor, samples)
    np.savez(data / "samples.npz", allow_pickle=False, **x)
    interface, scales, left_out = _run(job, network, x)
    for line in left_out:
        print(f"not served: {line}")
    found = Found(
        interface=interface,
        scales=scales,
        left_out=left_out,
        samples=len(samples),
        model_type=network.config.model_type,
        attention=_attention(network.config),
    )
    try:
        spec = make_spec(fields, folder.name, found)
    except ValidationError as error:  # a name or an axis that no model of ours may have
        raise UnsupportedError(explain(error, ModelSpec)) from error
    document = spec.model_dump(mode="json", exclude_none=True)
    (job.output / "model.yaml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def _tried(where: str, call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call of the library gives; its error is the folder's or the samples'."""
    try:
        return call(*arguments)
    except Exception as error:  # of any kind, depending on the files
        raise UnsupportedError(f"{where}{one_line(error)}") from error


def _copy(folder: Path, target: Path, files: tuple[str, ...]) -> None:
    for name in files:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / name, target / name)


def _run(job: HuggingFaceJob, network: Any, x: Arrays) -> tuple[Interface, dict[str, float], tuple[str, ...]]:
    """The interface, with the outputs that hold a row for each sample; the largest value of each output; and
    the outputs that are left out, each with its reason. Axes are found by calls of three and of two samples,
    and of a shorter sequence."""
    served = networks.Served(network, list(x), [], job.fields.pooling, job.fields.normalize).eval()
    probe = TorchNetwork(served, Interface(inputs=(), outputs=()))
    probe.inputs = list(x)
    served.forward = served.named
    rows = np.arange(3) % len(next(iter(x.values())))
    three = {name: array[rows] for name, array in x.items()}
    lengths = {a.shape[1] for a in x.values() if a.ndim == SEQUENCE_AXES}
    shorter = {
        name: array[:2, : (array.shape[1] + 1) // 2] if array.ndim == SEQUENCE_AXES else array[:2]
        for name, array in three.items()
    }
    calls = [three, {name: array[:2] for name, array in three.items()}, *([shorter] if lengths else [])]
    answers = []
    for call in calls:
        shown = ", ".join(f"{name} {a.dtype} {list(a.shape)}" for name, a in call.items())
        answers.append(_tried(f"it does not run with {shown}: ", _all_outputs, probe, call))
    outputs, scales, left_out = [], {}, []
    for name, array in answers[0].items():
        shapes = [answer[name].shape for answer in answers]
        if reason := _why_not(array, shapes):
            left_out.append(f"{name} {list(array.shape)}: {reason}")
            continue
        same = [a if a == b else -1 for a, b in zip(shapes[0][1:], shapes[-1][1:], strict=True)]
        outputs.append(Tensor.model_validate({"name": name, "dtype": str(array.dtype), "shape": (-1, *same)}))
        values = np.abs(array.astype(np.float64))
        scales[name] = float(values.max(initial=0.0, where=np.isfinite(values))) or 1.0
    if not outputs:
        raise UnsupportedError(f"no output has a row for each sample: {'; '.join(left_out)}")
    inputs = tuple(_input(name, array) for name, array in x.items())
    return Interface(inputs=inputs, outputs=tuple(outputs)), scales, tuple(left_out)


def _all_outputs(probe: TorchNetwork, x: Arrays) -> Arrays:
    with torch.inference_mode():
        found = probe.module.named(*probe._tensors(x))
    return {name: value.numpy() for name, value in found.items()}


def _why_not(array: Any, shapes: list[tuple[int, ...]]) -> str | None:
    """Why an output cannot be served, of its shapes for three and for two samples."""
    three, two = shapes[:2]
    if three[:1] != (3,) or two[:1] != (2,) or three[1:] != two[1:]:
        return "not a row of the same form for each sample"
    if str(array.dtype) not in TRITON_DTYPES:
        return f"Triton has no {array.dtype}"
    return None


def _input(name: str, array: Any) -> Tensor:
    shape = (-1, -1) if array.ndim == SEQUENCE_AXES else (-1, *array.shape[1:])
    return Tensor.model_validate({"name": name, "dtype": str(array.dtype), "shape": shape})


def _attention(config: Any) -> Attention | None:
    """That of the network, if all parts have the same heads and width."""
    parts = [c for name in ("text_config", "vision_config") if (c := getattr(config, name, None))] or [config]
    names = ("num_attention_heads", "hidden_size")
    (first, *others) = {tuple(getattr(part, name, 0) for name in names) for part in parts}
    layers = min(getattr(part, "num_hidden_layers", 0) for part in parts)
    if others or not all((layers, *first)):
        return None
    return Attention(layers=layers, heads=first[0], width=first[1])
