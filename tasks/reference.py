"""Stage `reference`: the framework's fp32 outputs for the samples, and the cost of one sample.

They come from the model's network in a process that has no exported artifact.
"""

from __future__ import annotations

from servegrid.domain.plugins import Plugin
from servegrid.domain.roofline import Count
from servegrid.domain.values import ArtifactRef, Cell
from servegrid.frameworks.fields import ReferenceFields
from servegrid.frameworks.networks import FRAMEWORKS
from servegrid.frameworks.steps import code
from servegrid.host.environment import versions
from servegrid.store.build import Workplace, build
from servegrid.store.sources import plugin_sources
from servegrid.store.store import BuildRequest, present_inputs
from tasks.caching import build_task


def request(plugin: Plugin, cell: Cell, prepared: ArtifactRef | None, samples: ArtifactRef) -> BuildRequest:
    """The network, the samples and the batch size."""
    spec, parameters = plugin.spec, cell.product.parameters
    return BuildRequest(
        stage="reference",
        code=code("reference", FRAMEWORKS[spec.framework]),
        fields=ReferenceFields(
            parameters=parameters,
            framework=spec.framework,
            interface=spec.interface(parameters),
            device=cell.dynamic.device_kind,
            batch_size=cell.dynamic.max_batch_size,
        ),
        inputs=present_inputs(prepared=prepared, samples=samples),
        sources=plugin_sources(plugin),
        libraries=versions(spec.requires),
    )


@build_task
def reference(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Compute the outputs, and count operations, in a child process."""
    return build(request, at)


def read(ref: ArtifactRef, at: Workplace) -> Count:
    """Operations, weights and bytes of one sample, as the framework counts them."""
    return Count.model_validate_json((at.site.store.path(ref) / "count.json").read_text(encoding="utf-8"))
