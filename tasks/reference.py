"""Stage `reference`: the framework's own fp32 outputs for the samples, and what one sample costs it.

They come from the plug-in's network in a process that is given no exported artifact.
"""

from __future__ import annotations

from servegrid.domain.plugins import Plugin
from servegrid.domain.roofline import Count
from servegrid.domain.values import ArtifactRef, Cell
from servegrid.host.environment import versions
from servegrid.store.build import Workplace, build
from servegrid.store.store import BuildRequest, present_inputs
from tasks.caching import build_task

VERSION = 5


def request(plugin: Plugin, cell: Cell, prepared: ArtifactRef | None, samples: ArtifactRef) -> BuildRequest:
    """What the reference reads: the network and the samples."""
    return BuildRequest(
        stage="reference",
        version=VERSION,
        fields={
            "framework": plugin.spec.framework,
            "device": cell.dynamic.device_kind,
            "parameters": cell.product.parameters,
            "interface": plugin.spec.interface(cell.product.parameters).model_dump(mode="json"),
            "batch_size": cell.dynamic.max_batch_size,
        },
        inputs=present_inputs(prepared=prepared, samples=samples),
        sources=plugin.sources("model.py"),
        libraries=versions(plugin.spec.requires),
    )


@build_task
def reference(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Compute the outputs, and count, in a child process."""
    return build(request, at)


def count(ref: ArtifactRef, at: Workplace) -> Count:
    """Operations, weights and bytes of one sample, by the counter of the framework itself."""
    return Count.model_validate_json((at.site.store.path(ref) / "count.json").read_text(encoding="utf-8"))
