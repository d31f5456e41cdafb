"""Stage `convert`: portable file -> serving format and precision.

A model can be converted from another converted model, which is then built, compared and cached like any.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from servegrid.domain.plugins import Plugin
from servegrid.domain.profile import Environment, GpuProfile
from servegrid.domain.values import ArtifactRef, Format, Product
from servegrid.formats import FORMATS
from servegrid.frameworks.steps import code, convert_step, parse_fields
from servegrid.host.environment import versions
from servegrid.store.build import Workplace, build
from servegrid.store.other_environment import check, versions_in
from servegrid.store.store import BuildRequest, present_inputs
from tasks.caching import build_task


def source(product: Product) -> Product | None:
    """The product that this one is converted from; None: its export."""
    return FORMATS[product.format].source(product)


def calibrated(product: Product) -> bool:
    """Whether the conversion reads samples of the model's data."""
    return product.precision in FORMATS[product.format].calibrated


def libraries(product: Product, elsewhere: Collection[Format]) -> set[str]:
    """Every distribution that this environment needs for the conversions from the export to the product, when
    the formats of `elsewhere` are converted to in another environment."""
    made_of = source(product)
    own = () if product.format in elsewhere else FORMATS[product.format].libraries
    return {*own, *(libraries(made_of, elsewhere) if made_of else ())}


def needed_elsewhere(format_: Format) -> tuple[str, ...]:
    """The distributions that another environment needs for the conversion to a format."""
    serving_format = FORMATS[format_]
    environment = serving_format.environment
    return environment.libraries if environment else serving_format.libraries


def environments(profile: GpuProfile) -> dict[str, Environment]:
    """Step -> environment, for the conversions that the profile has an environment for."""
    return {convert_step(name): environment for name, environment in profile.environments.items()}


def request(
    plugin: Plugin,
    product: Product,
    source: ArtifactRef,
    calibration: ArtifactRef | None = None,
    environments: Mapping[str, Environment] = MappingProxyType({}),
) -> BuildRequest:
    """The source, the precision, the tolerances, the options of the format, and the samples for calibration.
    Versions are those of the environment that the step runs in.

    Raises:
        UnsupportedError: that environment is missing, or lacks a distribution that the format needs.
    """
    serving_format, step = FORMATS[product.format], convert_step(product.format)
    libraries = versions(serving_format.libraries)
    if environment := environments.get(step):
        check(environment, needed_elsewhere(product.format))
        libraries = versions_in(environment, needed_elsewhere(product.format))
    return BuildRequest(
        stage=step,
        code=code(step),
        fields=parse_fields(
            step,
            {
                "precision": product.precision,
                "tolerances": plugin.spec.conversion_tolerances(product.variant, product.precision),
                **serving_format.build_fields(plugin.spec, product),
            },
        ),
        inputs=present_inputs(source=source, calibration=calibration),
        libraries=libraries,
    )


@build_task
def convert(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Convert in a child process."""
    return build(request, at)
