"""Stage `ceilings`: what this machine reaches in products and copies, measured once a host and profile."""

from __future__ import annotations

from servegrid.domain.roofline import Ceilings
from servegrid.domain.values import ArtifactRef, Cell
from servegrid.host.environment import host, missing, versions
from servegrid.store.build import Workplace, build
from servegrid.store.store import BuildRequest
from tasks.caching import build_task

VERSION = 1
LIBRARIES = ("torch",)


def measured() -> bool:
    """Whether PyTorch, which measures them, is installed."""
    return not missing(LIBRARIES)


def request(cell: Cell) -> BuildRequest:
    """What the ceilings depend on: the machine and the library."""
    machine = host()
    return BuildRequest(
        stage="ceilings",
        version=VERSION,
        fields={
            "device": cell.dynamic.device_kind,
            "profile": cell.profile,
            "host": machine.model_dump(mode="json", include={"name", "cpu", "cores", "gpu", "driver"}),
        },
        libraries=versions(LIBRARIES),
    )


@build_task
def ceilings(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Measure in a child process, alone on the device."""
    return build(request, at, alone=True)


def read(ref: ArtifactRef, at: Workplace) -> Ceilings:
    """What was measured."""
    text = (at.site.store.path(ref) / "ceilings.json").read_text(encoding="utf-8")
    return Ceilings.model_validate_json(text)
