"""Rules of a `model.yaml` that need the formats."""

from __future__ import annotations

from pathlib import Path

from servegrid.domain.spec import FormatRules, ModelSpec
from servegrid.domain.values import ExportFormat, Framework
from servegrid.domain.yaml_files import load_yaml
from servegrid.formats import FORMATS

EXPORTS: dict[Framework, tuple[ExportFormat, ...]] = {
    "torch": ("ts-trace", "ts-script", "torch-export", "onnx"),
    "tensorflow": ("tf-savedmodel", "onnx"),
    "onnx": ("onnx",),
    "torchscript": ("ts-trace",),
    "torch_export": ("torch-export", "onnx", "ts-trace"),
    "savedmodel": ("tf-savedmodel", "onnx"),
    "keras": ("tf-savedmodel", "onnx"),
}
"""Framework -> the export formats of its models."""


def wrong_formats(spec: ModelSpec) -> str | None:
    """The error in the spec's formats, if there is one."""
    known = EXPORTS[spec.framework]
    for name, entry in spec.formats.items():
        if entry.export not in known:
            return f"formats.{name}.export: {spec.framework} exports {', '.join(known)}, not {entry.export}"
        if name not in FORMATS:
            return f"formats.{name}: not built; there are {', '.join(FORMATS)}"
        built = FORMATS[name]
        if entry.export != built.export:
            return f"formats.{name}.export: it is made of {built.export}, not of {entry.export}"
        for precision in entry.precisions:
            if precision not in built.precisions:
                return f"formats.{name}.precisions: {', '.join(built.precisions)} are built, not {precision}"
    return None


RULES = FormatRules(
    wrong=wrong_formats, has_engines=lambda spec: any(FORMATS[name].engines for name in spec.formats)
)


def load_spec(path: Path) -> ModelSpec:
    """The spec in a `model.yaml`.

    Raises:
        UserError: the file is wrong.
    """
    return load_yaml(path, ModelSpec, RULES)
