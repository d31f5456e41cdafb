"""TensorFlow Estimators: how a folder with one is recognised, and what its owner does instead."""

from __future__ import annotations

import ast
from pathlib import Path

REASON = (
    "a TensorFlow Estimator, which TensorFlow 2.16 and later do not have; where TensorFlow 2.15 or older is "
    "installed, write a SavedModel by estimator.export_saved_model(FOLDER, serving_input_receiver_fn), and "
    "give its folder with --savedmodel"
)
CHECKPOINT, GRAPH = "checkpoint", "graph.pbtxt"


def defines_estimator(model_file: Path) -> bool:
    """Whether a model.py of the published toolkit has `get_estimator` and no `get_model`; it is not run."""
    tree = ast.parse(model_file.read_bytes())
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return "get_estimator" in names and "get_model" not in names


def is_estimator_folder(folder: Path) -> bool:
    """Whether a folder is what an Estimator keeps while it trains: its graph and checkpoints."""
    return (folder / CHECKPOINT).is_file() and (folder / GRAPH).is_file()
