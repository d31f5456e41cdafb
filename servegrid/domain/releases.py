"""`triton_releases.yaml` as values: what each Triton release carries."""

from __future__ import annotations

from pathlib import Path

from pydantic import PositiveInt, model_validator

from servegrid.domain.errors import UserError
from servegrid.domain.root import ROOT
from servegrid.domain.values import Value
from servegrid.domain.yaml_files import load_yaml

PATH = ROOT / "triton_releases.yaml"

FIRST_CUDA = {
    "7.0": (9, 0),
    "7.5": (10, 0),
    "8.0": (11, 0),
    "8.6": (11, 1),
    "8.9": (11, 8),
    "9.0": (11, 8),
    "10.0": (12, 8),
    "12.0": (12, 8),
}
"""Compute capability -> the first CUDA toolkit that supports it (NVIDIA, CUDA Toolkit release notes)."""


class Release(Value):
    """One release: versions, the highest ONNX opset and IR of its ONNX Runtime, the lowest CUDA compute
    capability. Null means unknown; every other figure names its source."""

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
            raise ValueError(f"sources.{name}: each known figure needs its source, and no other has one")
        return self


class Releases(Value):
    """Every release by its number, YY.MM; the last one with the tensorflow backend, and the first whose
    pytorch backend has the platform `torch_aoti`."""

    last_tensorflow: str
    first_torch_aoti: str
    releases: dict[str, Release]


def load_releases(path: Path = PATH) -> Releases:
    """The releases.

    Raises:
        UserError: the file is wrong.
    """
    return load_yaml(path, Releases)


def release_of(version: str, what: str, given: str | None) -> str:
    """The release of a server by its version, unless it is given; `what` names the server.

    Raises:
        UserError: it is not known.
    """
    known = {release.server: name for name, release in load_releases().releases.items() if release.server}
    release = given or known.get(version)
    if release is None:
        raise UserError(
            f"{what} is Triton {version}, whose release triton_releases.yaml does not have: give it with "
            "--triton-release YY.MM"
        )
    return release


def why_not_on(release: str, capability: str, known: Releases) -> str | None:
    """Why this release does not run on a card of this compute capability; None if it does.

    An unknown release or capability does not run either.
    """
    entry, first = known.releases.get(release), FIRST_CUDA.get(capability)
    if entry is None or entry.cuda is None or entry.compute_capability is None or first is None:
        return f"Triton {release} on compute capability {capability}: not in triton_releases.yaml"
    if _numbers(capability) < _numbers(entry.compute_capability):
        return f"Triton {release} needs compute capability {entry.compute_capability}, not {capability}"
    if _numbers(entry.cuda)[:2] < first:
        version = ".".join(map(str, first))
        return f"Triton {release} has CUDA {entry.cuda}; compute capability {capability} needs {version}"
    return None


def fitting(capability: str, known: Releases) -> tuple[str, ...]:
    """The releases that are known to run on a card of this compute capability, the oldest first."""
    return tuple(number for number in sorted(known.releases) if not why_not_on(number, capability, known))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def image(release: str) -> str:
    """The container image of a release on NGC."""
    return f"nvcr.io/nvidia/tritonserver:{release}-py3"
