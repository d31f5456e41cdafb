"""Stage `convert`: portable file -> serving format and precision."""

from __future__ import annotations

from tasks.caching import build_task
from tasks.core.build import Workplace, build
from tasks.core.environment import versions
from tasks.core.plugins import Plugin
from tasks.core.store import BuildRequest
from tasks.core.values import ArtifactRef, Product
from tasks.formats import FORMATS

VERSION = 3


def request(plugin: Plugin, product: Product, exported: ArtifactRef) -> BuildRequest:
    """What convert reads: the export, the precision to bring it to, how far that may move the answers."""
    module = FORMATS[product.format]
    tolerances = plugin.spec.conversion_tolerances(product.variant, product.precision)
    return BuildRequest(
        stage=module.CONVERT_STEP,
        version=VERSION,
        fields={
            "precision": product.precision,
            "tolerances": tolerances.model_dump(),
        },
        inputs={"exported": exported},
        libraries=versions(module.LIBRARIES),
    )


@build_task
def convert(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Convert in a child process."""
    return build(request, at)
