"""ONNX files that an older ONNX Runtime can read."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import helper


def write(model: onnx.ModelProto, path: str) -> None:
    """Save a graph with the operator sets that it uses and the lowest IR version, and check it. An older
    Triton refuses operator sets and IR versions that it does not know, even unused ones."""
    used = {"", *_domains(model.graph)}
    needed = [entry for entry in model.opset_import if entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(needed)
    model.ir_version = lowest_ir_version(model)
    onnx.save(model, path)
    onnx.checker.check_model(path)


def lowest_ir_version(model: onnx.ModelProto) -> int:
    """The lowest IR version that supports a graph's operator sets.

    Source: the table of released versions in ONNX, docs/Versioning.md, which `onnx.helper` holds. Operator
    sets that are not ONNX's, such as com.microsoft, need no IR version.
    """
    return int(helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True))


def _domains(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield node.domain
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _domains(inner)
