"""Fusion of a transformer's ONNX graph into the operators that ONNX Runtime has for it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
from onnx import helper
from onnxruntime.transformers import optimizer

from servegrid.domain.conversion import Fusion

DOMAIN = "com.microsoft"


def fuse(source: Path, options: Fusion) -> onnx.ModelProto:
    """The graph with attention blocks, embeddings and activations as single nodes.

    Only the graph rewriting in Python runs. ONNX Runtime repeats its own optimizations when it loads the
    graph; a graph saved after them would depend on this machine.

    Raises:
        ValueError: fewer nodes were fused than the model's spec requires.
    """
    fused = optimizer.optimize_model(
        str(source),
        model_type=options.model_type,
        num_heads=options.num_heads,
        hidden_size=options.hidden_size,
        opt_level=0,
    )
    model = fused.model
    found = Counter(node.op_type for node in model.graph.node)
    print("fused: " + ", ".join(f"{name} {found[name]} of {least}" for name, least in options.fused.items()))
    missed = [
        f"{n}: {found[n]} found, {least} wanted" for n, least in options.fused.items() if found[n] < least
    ]
    if missed:
        raise ValueError(f"the transformer optimizer left nodes unfused: {'; '.join(missed)}")
    if DOMAIN not in {entry.domain for entry in model.opset_import}:
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return model
