"""Stage `export`: framework object -> portable file, once for each export format."""

from __future__ import annotations

from servegrid.domain.plugins import Plugin
from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import ArtifactRef, ExportFormat, Framework, Product
from servegrid.host.environment import versions
from servegrid.store.build import Workplace, build
from servegrid.store.store import BuildRequest, present_inputs
from tasks.caching import build_task

VERSION = 3
LIBRARIES: dict[ExportFormat, tuple[str, ...]] = {
    "ts-trace": ("torch",),
    "ts-script": ("torch",),
    "torch-export": ("torch",),
    "onnx": ("onnx",),
    "tf-savedmodel": ("tensorflow", "keras"),
}
"""Distributions that exporting needs beside those of the model."""
EXPORTERS: dict[tuple[Framework, ExportFormat], tuple[str, ...]] = {
    ("torch", "onnx"): ("torch", "onnxscript"),
    ("tensorflow", "onnx"): ("tensorflow", "tf2onnx"),
    ("savedmodel", "onnx"): ("tensorflow", "tf2onnx"),
}
"""Those that exporting from one framework needs in addition."""


def libraries(spec: ModelSpec, format_: ExportFormat) -> set[str]:
    """Every distribution that exporting the model needs."""
    return {*spec.requires, *LIBRARIES[format_], *EXPORTERS.get((spec.framework, format_), ())}


def request(plugin: Plugin, product: Product, prepared: ArtifactRef | None) -> BuildRequest:
    """What export reads: the network, one batch of the data, and how to write it."""
    interface = plugin.spec.interface(product.parameters)
    return BuildRequest(
        stage="export",
        version=VERSION,
        fields={
            "framework": plugin.spec.framework,
            "parameters": product.parameters,
            "format": product.export_format,
            "opset": product.opset,
            "interface": interface.model_dump(mode="json"),
        },
        inputs=present_inputs(prepared=prepared),
        sources=plugin.sources("model.py") | plugin.sources("dataloader.py"),
        libraries=versions(libraries(plugin.spec, product.export_format)),
    )


@build_task
def export(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Export in a child process."""
    return build(request, at)
