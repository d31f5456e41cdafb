"""Checkpoint and data: the true classifier's weights, and points that it labels."""

from pathlib import Path
from typing import Any

import numpy as np


def prepare(variant: str, output: Path, sources: Path, parameters: dict[str, Any]) -> dict[str, str]:
    """`weights.npy` [3, 4] and `points.npz` with x [n, 4] and labels [n].

    `full` reads the weights from the user's folder `sources`; `tiny` makes its own, seeded. Returns
    parameter name -> file name; get_model and get_dataloader_fn receive these as paths.
    """
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(3, 4)).astype(np.float32)
    if variant == "full":
        weights = np.load(sources / "weights.npy")
    x = rng.normal(size=(400, 4)).astype(np.float32)
    np.save(output / "weights.npy", weights)
    np.savez(output / "points.npz", x=x, labels=(x @ weights.T).argmax(axis=1))
    return {"weights": "weights.npy", "points": "points.npz"}
