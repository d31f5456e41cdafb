"""Stage `convert`: portable file -> serving format and precision.

A conversion may be made of another one, which is then built, proven and cached like any."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tasks.caching import build_task
from tasks.core.build import Workplace, build
from tasks.core.environment import versions
from tasks.core.other_environment import check, versions_in
from tasks.core.plugins import Plugin
from tasks.core.profile import GpuProfile
from tasks.core.store import BuildRequest, given
from tasks.core.values import ArtifactRef, Product
from tasks.formats import FORMATS

VERSION = 6


def source(product: Product) -> Product | None:
    """The product that this one is converted from; None: its export."""
    return FORMATS[product.format].source(product)


def calibrated(product: Product) -> bool:
    """Whether the conversion to this product reads samples of the model's data."""
    return FORMATS[product.format].calibrated(product)


def libraries(product: Product) -> set[str]:
    """Every distribution that the conversions from the export to the product need."""
    made_of = source(product)
    return {*FORMATS[product.format].LIBRARIES, *(libraries(made_of) if made_of else ())}


def environments(profile: GpuProfile) -> dict[str, Path]:
    """The steps that the profile has run in environments of their own, by name."""
    return {FORMATS[name].CONVERT_STEP: folder for name, folder in profile.environments.items()}


def request(
    plugin: Plugin,
    product: Product,
    source: ArtifactRef,
    calibration: ArtifactRef | None = None,
    environments: Mapping[str, Path] = MappingProxyType({}),
) -> BuildRequest:
    """What convert reads: its source, the precision to bring it to, how far that may move the answers, and
    the samples that a calibrated precision takes its ranges from. Versions are those of the environment that
    the step runs in.

    Raises:
        UnsupportedError: that environment is not there, or not what the format needs.
    """
    module = FORMATS[product.format]
    libraries = versions(module.LIBRARIES)
    if module.ENVIRONMENT:
        folder = environments[module.CONVERT_STEP]
        check(folder, module.ENVIRONMENT.libraries)
        libraries = versions_in(folder, module.ENVIRONMENT.libraries)
    tolerances = plugin.spec.conversion_tolerances(product.variant, product.precision)
    return BuildRequest(
        stage=module.CONVERT_STEP,
        version=VERSION,
        fields={
            "precision": product.precision,
            "tolerances": tolerances.model_dump(),
            **module.build_fields(plugin.spec, product),
        },
        inputs=given(source=source, calibration=calibration),
        libraries=libraries,
    )


@build_task
def convert(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Convert in a child process."""
    return build(request, at)
