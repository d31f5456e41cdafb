"""Checkpoint and volumes of each variant."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from blobs import CLASSES, make_volumes
from cases import held_out_cases, read_case
from numpy.lib.format import open_memmap

FILES = {"checkpoint": "checkpoint.ckpt", "volumes": "volumes.npy", "labels": "labels.npy"}
CHECKPOINT, CASES = "nvidia_nnunet_pyt_ckpt_amp_3d_fold2.ckpt", "Task01_BrainTumour"  # the published names
TRAINING_VOLUMES, HELD_OUT_VOLUMES = 480, 200
DEFAULTS = {"size": 12, "levels": 3, "filters": 8, "steps": 100, "seed": 0}


def prepare(variant: str, output: Path, sources: Path, parameters: dict[str, Any]) -> dict[str, str]:
    """Fill the folder `output`; returns keyword arguments of the other functions as file names in it.

    volumes.npy: normalised patches, float32 [n, channels, size, size, size]; labels.npy: their classes, uint8
    [n, size, size, size]. `full` takes the published checkpoint and the middle of the cases that it has not
    seen from `sources`; it reads channels, classes and size. `tiny` trains a small network on made-up
    volumes; it reads size, levels, filters, steps and seed, all with defaults. Raises ValueError on another
    variant, and where a volume is not as the Medical Segmentation Decathlon publishes it.
    """
    output.mkdir(parents=True, exist_ok=True)
    if variant == "full":
        _take_published(output, sources, *(int(parameters[key]) for key in ("channels", "classes", "size")))
    elif variant == "tiny":
        _make_tiny(output, **{key: int(parameters.get(key, default)) for key, default in DEFAULTS.items()})
    else:
        raise ValueError(f"unknown variant {variant!r}: expected full or tiny")
    return dict(FILES)


def _take_published(output: Path, sources: Path, channels: int, classes: int, size: int) -> None:
    folder = sources / CASES
    cases = held_out_cases(folder)
    cube = (size, size, size)
    # Written through to the disk: all patches together are over 3 GB.
    volumes = open_memmap(output / FILES["volumes"], "w+", np.float32, (len(cases), channels, *cube))
    labels = open_memmap(output / FILES["labels"], "w+", np.uint8, (len(cases), *cube))
    for index, case in enumerate(cases):
        volumes[index], labels[index] = read_case(folder, case, channels, classes, size)
    shutil.copyfile(sources / CHECKPOINT, output / FILES["checkpoint"])
    print(f"took {len(cases)} cases of {folder}", flush=True)


def _make_tiny(output: Path, size: int, levels: int, filters: int, steps: int, seed: int) -> None:
    # Imported here: the full variant needs no torch.
    import torch
    from network import PREFIX
    from tiny import train

    volumes, labels = make_volumes(TRAINING_VOLUMES + HELD_OUT_VOLUMES, size, seed)
    np.save(output / FILES["volumes"], volumes[TRAINING_VOLUMES:])
    np.save(output / FILES["labels"], labels[TRAINING_VOLUMES:])
    print(f"made {TRAINING_VOLUMES} training and {HELD_OUT_VOLUMES} held-out volumes", flush=True)
    shown = slice(TRAINING_VOLUMES)
    network = train(volumes[shown], labels[shown], CLASSES, levels, filters, steps, seed)
    state = {PREFIX + name: value.detach() for name, value in network.named_parameters()}
    torch.save({"state_dict": state}, output / FILES["checkpoint"])
