"""Checkpoint and data of each variant."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from clicks import World, make_clicks
from parquet import parquet_files

FILES = {"checkpoint": "checkpoint", "data": "valid"}
SOURCES = FILES  # the folders keep their published names
TRAINING_DISPLAYS, HELD_OUT_DISPLAYS = 8000, 400
TINY_SIZES = {"hidden_units": 64, "hidden_layers": 2, "epochs": 6, "seed": 0}


def prepare(variant: str, output: Path, sources: Path, parameters: dict[str, Any]) -> dict[str, str]:
    """Fill the folder `output`; returns keyword arguments of the other functions as folder names in it.

    `full` copies the published folders from `sources` and reads no parameter. `tiny` generates clicks and
    trains a small network; it reads hidden_units (64), hidden_layers (2), epochs (6), seed (0) and combiner
    (sum) from `parameters` and ignores the rest. Raises ValueError on another variant, and when the data of
    `full` is not what it should be.
    """
    output.mkdir(parents=True, exist_ok=True)
    if variant == "full":
        parquet_files(sources / SOURCES["data"])
        for key, name in SOURCES.items():
            shutil.copytree(sources / name, output / FILES[key], dirs_exist_ok=True)
    elif variant == "tiny":
        sizes = {key: int(parameters.get(key, default)) for key, default in TINY_SIZES.items()}
        _make_tiny(output, combiner=str(parameters.get("combiner", "sum")), **sizes)
    else:
        raise ValueError(f"unknown variant {variant!r}: expected full or tiny")
    return dict(FILES)


def _make_tiny(
    output: Path, hidden_units: int, hidden_layers: int, epochs: int, seed: int, combiner: str
) -> None:
    # Imported here: the full variant needs no TensorFlow.
    from checkpoint import save
    from tiny import train

    rng = np.random.default_rng(seed)
    world = World(rng)
    training = make_clicks(world, TRAINING_DISPLAYS, 0, rng)
    held_out = make_clicks(world, HELD_OUT_DISPLAYS, TRAINING_DISPLAYS, rng)
    (output / FILES["data"]).mkdir()
    held_out.write_parquet(output / FILES["data"] / "part_0.parquet")
    model = train(training, hidden_units, hidden_layers, combiner, epochs, seed)
    save(model, output / FILES["checkpoint"])
