"""Stage `convert`: portable file -> serving format and precision.

A conversion may be made of another one, which is then built, proven and cached like any."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from servegrid.domain.plugins import Plugin
from servegrid.domain.profile import Environment, GpuProfile
from servegrid.domain.values import ArtifactRef, Format, Product
from servegrid.formats import FORMATS
from servegrid.host.environment import versions
from servegrid.store.build import Workplace, build
from servegrid.store.other_environment import check, versions_in
from servegrid.store.store import BuildRequest, present_inputs
from tasks.caching import build_task

VERSION = 6


def source(product: Product) -> Product | None:
    """The product that this one is converted from; None: its export."""
    return FORMATS[product.format].source(product)


def calibrated(product: Product) -> bool:
    """Whether the conversion to this product reads samples of the model's data."""
    return product.precision in FORMATS[product.format].calibrated


def libraries(product: Product, elsewhere: Collection[Format]) -> set[str]:
    """Every distribution that the conversions from the export to the product need here; some formats are
    made elsewhere."""
    made_of = source(product)
    own = () if product.format in elsewhere else FORMATS[product.format].libraries
    return {*own, *(libraries(made_of, elsewhere) if made_of else ())}


def needed_elsewhere(format_: Format) -> tuple[str, ...]:
    """The distributions that another environment must have to make a format."""
    serving_format = FORMATS[format_]
    environment = serving_format.environment
    return environment.libraries if environment else serving_format.libraries


def environments(profile: GpuProfile) -> dict[str, Environment]:
    """The steps that the profile has run in environments of their own, by name."""
    return {FORMATS[name].convert_step: place for name, place in profile.environments.items()}


def request(
    plugin: Plugin,
    product: Product,
    source: ArtifactRef,
    calibration: ArtifactRef | None = None,
    environments: Mapping[str, Environment] = MappingProxyType({}),
) -> BuildRequest:
    """What convert reads: its source, the precision to bring it to, how far that may move the answers, and
    the samples that a calibrated precision takes its ranges from. Versions are those of the environment that
    the step runs in.

    Raises:
        UnsupportedError: that environment is not there, or not what the format needs.
    """
    serving_format = FORMATS[product.format]
    libraries = versions(serving_format.libraries)
    if environment := environments.get(serving_format.convert_step):
        check(environment, needed_elsewhere(product.format))
        libraries = versions_in(environment, needed_elsewhere(product.format))
    tolerances = plugin.spec.conversion_tolerances(product.variant, product.precision)
    return BuildRequest(
        stage=serving_format.convert_step,
        version=VERSION,
        fields={
            "precision": product.precision,
            "tolerances": tolerances.model_dump(),
            **serving_format.build_fields(plugin.spec, product),
        },
        inputs=present_inputs(source=source, calibration=calibration),
        libraries=libraries,
    )


@build_task
def convert(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Convert in a child process."""
    return build(request, at)
