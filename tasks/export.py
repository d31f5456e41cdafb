"""Stage `export`: framework object -> portable file, once for each export format."""

from __future__ import annotations

from servegrid.domain.plugins import Plugin
from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import ArtifactRef, ExportFormat, Framework, Product
from servegrid.frameworks.fields import ExportFields
from servegrid.frameworks.networks import FRAMEWORKS
from servegrid.frameworks.steps import code
from servegrid.host.environment import versions
from servegrid.store.build import Workplace, build
from servegrid.store.sources import plugin_sources
from servegrid.store.store import BuildRequest, present_inputs
from tasks.caching import build_task

LIBRARIES: dict[ExportFormat, tuple[str, ...]] = {
    "ts-trace": ("torch",),
    "ts-script": ("torch",),
    "torch-export": ("torch",),
    "onnx": ("onnx",),
    "tf-savedmodel": ("tensorflow", "keras"),
}
"""Distributions that an export to the format needs, in addition to those of the model."""
EXPORTERS: dict[tuple[Framework, ExportFormat], tuple[str, ...]] = {
    ("torch", "onnx"): ("torch", "onnxscript"),
    ("tensorflow", "onnx"): ("tensorflow", "tf2onnx"),
    ("torch_export", "onnx"): ("torch", "onnxscript"),
    ("savedmodel", "onnx"): ("tensorflow", "tf2onnx"),
    ("keras", "onnx"): ("tensorflow", "tf2onnx"),
}
"""Distributions that an export from the framework to the format needs in addition."""


def libraries(spec: ModelSpec, format_: ExportFormat) -> set[str]:
    """Every distribution that exporting the model needs."""
    return {*spec.requires, *LIBRARIES[format_], *EXPORTERS.get((spec.framework, format_), ())}


def request(plugin: Plugin, product: Product, prepared: ArtifactRef | None) -> BuildRequest:
    """The network, one batch of the data, and the format to write."""
    spec = plugin.spec
    return BuildRequest(
        stage="export",
        code=code("export", FRAMEWORKS[spec.framework]),
        fields=ExportFields(
            parameters=product.parameters,
            framework=spec.framework,
            interface=spec.interface(product.parameters),
            format=product.export_format,
            opset=product.opset,
        ),
        inputs=present_inputs(prepared=prepared),
        sources=plugin_sources(plugin),
        libraries=versions(libraries(spec, product.export_format)),
    )


@build_task
def export(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Export in a child process."""
    return build(request, at)
