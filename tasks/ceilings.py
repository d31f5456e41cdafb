"""Stage `ceilings`: rates of matrix products and copies that this machine reaches, by host and profile."""

from __future__ import annotations

from servegrid.domain.roofline import Ceilings
from servegrid.domain.values import ArtifactRef, Cell
from servegrid.frameworks.fields import CeilingsFields, Machine
from servegrid.frameworks.steps import code
from servegrid.host.environment import host, missing, versions
from servegrid.store.build import Workplace, build
from servegrid.store.store import BuildRequest
from tasks.caching import build_task

LIBRARIES = ("torch",)


def measured() -> bool:
    """Whether PyTorch, which measures them, is installed."""
    return not missing(LIBRARIES)


def request(cell: Cell) -> BuildRequest:
    """The machine and the library."""
    return BuildRequest(
        stage="ceilings",
        code=code("ceilings"),
        fields=CeilingsFields(
            device=cell.dynamic.device_kind,
            profile=cell.profile,
            host=Machine(**host().model_dump(include=set(Machine.model_fields))),
        ),
        libraries=versions(LIBRARIES),
        alone=True,
    )


@build_task
def ceilings(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Measure in a child process, alone on the device."""
    return build(request, at)


def read(ref: ArtifactRef, at: Workplace) -> Ceilings:
    """The measured rates."""
    text = (at.site.store.path(ref) / "ceilings.json").read_text(encoding="utf-8")
    return Ceilings.model_validate_json(text)
