"""Stage `profile_data`: real samples, for the load generators and for correctness."""

from __future__ import annotations

from servegrid.domain.plugins import Plugin
from servegrid.domain.values import ArtifactRef, Cell, Product
from servegrid.host.environment import versions
from servegrid.store.build import Workplace, build
from servegrid.store.store import BuildRequest, present_inputs
from tasks.caching import build_task

VERSION = 1


def request(plugin: Plugin, cell: Cell, prepared: ArtifactRef | None) -> BuildRequest:
    """What profile_data reads: the prepared data, through dataloader.py, and how much of it.

    Random weights have no metric: two of the largest batches are enough to compare tensors.
    """
    product = cell.product
    samples = plugin.spec.variants[product.variant].samples
    if product.random_weights:
        samples = min(samples, 2 * (plugin.spec.fixed_batch or cell.dynamic.max_batch_size))
    return _request(plugin, product, prepared, samples)


def calibration(plugin: Plugin, product: Product, prepared: ArtifactRef | None) -> BuildRequest:
    """The samples that int8 is calibrated on: an artifact of their own, so that how many others there are
    does not matter to the conversion."""
    samples = plugin.spec.variants[product.variant].convert.onnx.int8.samples
    return _request(plugin, product, prepared, samples)


def _request(plugin: Plugin, product: Product, prepared: ArtifactRef | None, samples: int) -> BuildRequest:
    return BuildRequest(
        stage="profile_data",
        version=VERSION,
        fields={"parameters": product.parameters, "samples": samples},
        inputs=present_inputs(prepared=prepared),
        sources=plugin.sources("dataloader.py"),
        libraries=versions(plugin.spec.requires),
    )


@build_task
def profile_data(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Take the samples in a child process."""
    return build(request, at)
