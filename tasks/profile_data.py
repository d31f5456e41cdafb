"""Stage `profile_data`: samples of the model's data, for load generators, correctness and calibration."""

from __future__ import annotations

from servegrid.domain.plugins import Plugin
from servegrid.domain.values import ArtifactRef, Cell, Product
from servegrid.frameworks.fields import ProfileDataFields
from servegrid.frameworks.steps import code
from servegrid.host.environment import versions
from servegrid.store.build import Workplace, build
from servegrid.store.sources import plugin_sources
from servegrid.store.store import BuildRequest, present_inputs
from tasks.caching import build_task


def request(plugin: Plugin, cell: Cell, prepared: ArtifactRef | None) -> BuildRequest:
    """The prepared data, through dataloader.py, and the number of samples.

    Random weights have no metric: two of the largest batches are enough to compare tensors.
    """
    product = cell.product
    samples = plugin.spec.variants[product.variant].samples
    if product.random_weights:
        samples = min(samples, 2 * (plugin.spec.fixed_batch or cell.dynamic.max_batch_size))
    return _request(plugin, product, prepared, samples)


def calibration(plugin: Plugin, product: Product, prepared: ArtifactRef | None) -> BuildRequest:
    """The samples for int8 calibration: an artifact of their own, so that the number of the other samples
    does not change the conversion's key."""
    samples = plugin.spec.variants[product.variant].convert.onnx.int8.samples
    return _request(plugin, product, prepared, samples)


def _request(plugin: Plugin, product: Product, prepared: ArtifactRef | None, samples: int) -> BuildRequest:
    return BuildRequest(
        stage="profile_data",
        code=code("profile_data"),
        fields=ProfileDataFields(parameters=product.parameters, samples=samples),
        inputs=present_inputs(prepared=prepared),
        sources=plugin_sources(plugin),
        libraries=versions(plugin.spec.requires),
    )


@build_task
def profile_data(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Take the samples in a child process."""
    return build(request, at)
