"""Stage `count`: operations, weights and bytes of one sample, by the counter of the framework itself."""

from __future__ import annotations

from tasks.caching import build_task
from tasks.core.build import Workplace, build
from tasks.core.environment import versions
from tasks.core.plugins import Plugin
from tasks.core.roofline import Count
from tasks.core.store import BuildRequest, given
from tasks.core.values import ArtifactRef, Cell

VERSION = 1


def request(plugin: Plugin, cell: Cell, prepared: ArtifactRef | None, samples: ArtifactRef) -> BuildRequest:
    """What the count reads: the network, and samples for their shape."""
    return BuildRequest(
        stage="count",
        version=VERSION,
        fields={
            "framework": plugin.spec.framework,
            "parameters": cell.product.parameters,
            "interface": plugin.spec.interface(cell.product.parameters).model_dump(mode="json"),
        },
        inputs=given(prepared=prepared, samples=samples),
        sources=plugin.sources("model.py"),
        libraries=versions(plugin.spec.requires),
    )


@build_task
def count(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Run the framework's network (fp32, CPU) once in a child process, counting."""
    return build(request, at)


def read(ref: ArtifactRef, at: Workplace) -> Count:
    """What was counted."""
    return Count.model_validate_json((at.site.store.path(ref) / "count.json").read_text(encoding="utf-8"))
