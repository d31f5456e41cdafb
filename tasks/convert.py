"""Stage `convert`: portable file -> serving format and precision.

A conversion may be made of another one, which is then built, proven and cached like any."""

from __future__ import annotations

from tasks.caching import build_task
from tasks.core.build import Workplace, build
from tasks.core.environment import versions
from tasks.core.plugins import Plugin
from tasks.core.store import BuildRequest, given
from tasks.core.values import ArtifactRef, Product
from tasks.formats import BUILD_FIELDS, FORMATS

VERSION = 6


def source(product: Product) -> Product | None:
    """The product that this one is converted from; None: its export.

    ONNX in half precision is made of the fp32 graph, which is fused where the model asks for it. What
    TensorRT reads is made for it.
    """
    made_of = FORMATS[product.format].MADE_OF
    if made_of:
        accelerator = "trt" if product.format == "trt" else product.accelerator
        return product.model_copy(update={"format": made_of, "accelerator": accelerator})
    if (product.format, product.precision) == ("onnx", "fp16"):
        return product.model_copy(update={"precision": "fp32"})
    return None


def calibrated(product: Product) -> bool:
    """Whether the conversion to this product reads samples of the model's data."""
    return (product.format, product.precision) == ("onnx", "int8")


def libraries(product: Product) -> set[str]:
    """Every distribution that the conversions from the export to the product need."""
    made_of = source(product)
    return {*FORMATS[product.format].LIBRARIES, *(libraries(made_of) if made_of else ())}


def request(
    plugin: Plugin, product: Product, source: ArtifactRef, calibration: ArtifactRef | None = None
) -> BuildRequest:
    """What convert reads: its source, the precision to bring it to, how far that may move the answers, and
    the samples that a calibrated precision takes its ranges from."""
    module = FORMATS[product.format]
    tolerances = plugin.spec.conversion_tolerances(product.variant, product.precision)
    more = BUILD_FIELDS[product.format](plugin.spec, product) if product.format in BUILD_FIELDS else {}
    return BuildRequest(
        stage=module.CONVERT_STEP,
        version=VERSION,
        fields={
            "precision": product.precision,
            "tolerances": tolerances.model_dump(),
            **more,
        },
        inputs=given(source=source, calibration=calibration),
        libraries=versions(module.LIBRARIES),
    )


@build_task
def convert(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Convert in a child process."""
    return build(request, at)
