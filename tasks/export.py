"""Stage `export`: framework object -> portable file, once for each export format."""

from __future__ import annotations

from tasks.caching import build_task
from tasks.core.build import Workplace, build
from tasks.core.environment import versions
from tasks.core.plugins import Plugin, source_digests
from tasks.core.store import BuildRequest
from tasks.core.values import ArtifactRef, ExportFormat, Product

VERSION = 1
LIBRARIES: dict[ExportFormat, tuple[str, ...]] = {
    "ts-trace": ("torch",),
    "onnx": ("torch", "onnx", "onnxscript"),
}
"""Distributions that exporting needs beside those of the model."""


def request(plugin: Plugin, product: Product, prepared: ArtifactRef) -> BuildRequest:
    """What export reads: the network, one batch of the data, and how to write it."""
    interface = plugin.spec.interface(product.parameters)
    return BuildRequest(
        stage="export",
        version=VERSION,
        fields={
            "parameters": product.parameters,
            "format": product.export_format,
            "opset": product.opset,
            "interface": interface.model_dump(mode="json"),
        },
        inputs={"prepared": prepared},
        sources=source_digests(plugin.folder, "model.py") | source_digests(plugin.folder, "dataloader.py"),
        libraries=versions({*plugin.spec.requires, *LIBRARIES[product.export_format]}),
    )


@build_task
def export(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Export in a child process."""
    return build(request, at)
