"""`triton_releases.yaml` as values: what each Triton release carries."""

from __future__ import annotations

from pathlib import Path

from pydantic import PositiveInt, model_validator

from tasks.core.site import ROOT
from tasks.core.values import Value
from tasks.core.yaml_files import load_yaml

PATH = ROOT / "triton_releases.yaml"


class Release(Value):
    """One release: versions, the highest ONNX opset and IR of its ONNX Runtime, the least CUDA compute
    capability. A figure that is null is not known; every other one names its source."""

    server: str | None
    cuda: str | None
    tensorrt: str | None
    onnxruntime: str | None
    onnx_opset: PositiveInt | None
    onnx_ir: PositiveInt | None
    compute_capability: str | None
    sources: dict[str, str]

    @model_validator(mode="after")
    def _sourced(self) -> Release:
        known = {name for name, value in self if name != "sources" and value is not None}
        for name in sorted(known ^ set(self.sources)):
            raise ValueError(f"sources.{name}: each figure that is known names its source, and no other")
        return self


class Releases(Value):
    """Every release by its number, YY.MM, and the last one with the tensorflow backend."""

    last_tensorflow: str
    releases: dict[str, Release]


def load_releases(path: Path = PATH) -> Releases:
    """The releases.

    Raises:
        UserError: the file is wrong.
    """
    return load_yaml(path, Releases)


def image(release: str) -> str:
    """The container image of a release on NGC."""
    return f"nvcr.io/nvidia/tritonserver:{release}-py3"
