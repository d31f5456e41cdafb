"""Stage `convert`: portable file -> serving format and precision."""

from __future__ import annotations

from tasks.caching import build_task
from tasks.core.build import Workplace, build
from tasks.core.environment import versions
from tasks.core.store import BuildRequest
from tasks.core.values import ArtifactRef, Product
from tasks.formats import FORMATS

VERSION = 1


def request(product: Product, exported: ArtifactRef) -> BuildRequest:
    """What convert reads: the export, and the precision to bring it to."""
    module = FORMATS[product.format]
    return BuildRequest(
        stage=module.CONVERT_STEP,
        version=VERSION,
        fields={"precision": product.precision},
        inputs={"exported": exported},
        libraries=versions(module.LIBRARIES),
    )


@build_task
def convert(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Convert in a child process."""
    return build(request, at)
