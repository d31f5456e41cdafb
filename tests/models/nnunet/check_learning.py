"""Prints Dice of the tiny network and of a blind one as JSON; writes the tiny one as ONNX, in half precision.

Arguments: the folder that prepare made, and the folder to write model.onnx to.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from blobs import make_volumes
from dataloader import get_dataloader_fn
from metrics import MetricsCalculator
from model import get_model
from onnxruntime.transformers import float16
from tiny import train

FOLDER, TARGET = Path(sys.argv[1]), Path(sys.argv[2]) / "model.onnx"


def score(module: torch.nn.Module, see: Callable[[Any], Any]) -> float:
    """Mean Dice on the held-out volumes."""
    calculator = MetricsCalculator(4)
    files = {"volumes": str(FOLDER / "volumes.npy"), "labels": str(FOLDER / "labels.npy")}
    for ids, x, y_real in get_dataloader_fn(4, 12, 64, **files)():
        with torch.inference_mode():
            answer = module(torch.from_numpy(see(x["INPUT__0"]))).numpy()
        calculator.update(ids, {"OUTPUT__0": answer}, x, y_real)
    return calculator.metrics["mean_dice"]


def head(x: Any) -> Any:
    """Where the head is, without any intensity."""
    return (x != 0).astype(np.float32)


volumes, labels = make_volumes(480, 12, seed=0)
blind = train(head(volumes), labels, 4, levels=3, filters=8, steps=100, seed=0)


def weights(seed: int) -> torch.Tensor:
    network = train(volumes, labels, 4, levels=3, filters=2, steps=3, seed=seed)
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


tiny, names = get_model(4, 4, 3, 8, str(FOLDER / "checkpoint.ckpt"))
torch.onnx.export(
    tiny,
    (torch.zeros(2, 4, 12, 12, 12),),
    str(TARGET),
    input_names=names["inputs"],
    output_names=names["outputs"],
    dynamic_axes={"INPUT__0": {0: "batch"}, "OUTPUT__0": {0: "batch"}},
    opset_version=12,
    dynamo=False,
)
onnx.save(float16.convert_float_to_float16(onnx.load(TARGET), keep_io_types=False), TARGET)
first, again, other = weights(0), weights(0), weights(1)
results = {
    "tiny": score(tiny, lambda x: x),
    "shuffled": score(blind, head),
    "same": torch.equal(first, again),
    "follows_seed": not torch.equal(first, other),
}
print(json.dumps(results))
