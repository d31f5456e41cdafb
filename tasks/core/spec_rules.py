"""Rules of a `model.yaml` that say which formats a framework makes, and which batches a model takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.core.values import ExportFormat, Framework
from tasks.formats import FORMATS

if TYPE_CHECKING:
    from tasks.core.spec import ModelSpec, Variant

EXPORTS: dict[Framework, tuple[ExportFormat, ...]] = {
    "torch": ("ts-trace", "ts-script", "torch-export", "onnx"),
    "tensorflow": ("tf-savedmodel", "onnx"),
    "onnx": ("onnx",),
    "torchscript": ("ts-trace",),
    "savedmodel": ("tf-savedmodel", "onnx"),
}
"""What each framework can export; a model file, what it is and can be made into."""


def wrong_formats(spec: ModelSpec) -> str | None:
    """What is wrong with the formats, if something is."""
    known = EXPORTS[spec.framework]
    for name, entry in spec.formats.items():
        if entry.export not in known:
            return f"formats.{name}.export: {spec.framework} exports {', '.join(known)}, not {entry.export}"
        if name not in FORMATS:
            return f"formats.{name}: not built; there are {', '.join(FORMATS)}"
        module = FORMATS[name]
        if entry.export != module.EXPORT:
            return f"formats.{name}.export: it is made of {module.EXPORT}, not of {entry.export}"
        for precision in entry.precisions:
            if precision not in module.PRECISIONS:
                return f"formats.{name}.precisions: {', '.join(module.PRECISIONS)} are built, not {precision}"
    return None


def wrong_batches(spec: ModelSpec, where: str, variant: Variant) -> str | None:
    """What does not fit the first axis of the inputs, if something does not."""
    fixed, serving = spec.fixed_batch, variant.serving
    if fixed is None:
        return None if serving.max_batch_size else f"{where}.serving.max_batch_size: at least 1"
    if spec.framework == "torch":
        return (
            f"inputs.{spec.inputs[0].name}.shape: a network of PyTorch's is exported with a free first axis"
        )
    for tensor in (*spec.inputs, *spec.outputs):
        if tensor.shape[0] != fixed:
            return (
                f"{tensor.name}.shape: its first axis is {tensor.shape[0]}, that of the first input {fixed}"
            )
    sizes = {*variant.offline.batch_sizes, variant.online.client_batch}
    if serving.max_batch_size or serving.preferred_batch_sizes or sizes != {fixed}:
        return (
            f"{where}: with a first axis of {fixed} the server does no batching: serving.max_batch_size 0, "
            f"no preferred_batch_sizes, and batches of {fixed} only"
        )
    return None
