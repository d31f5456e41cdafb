"""Checkpoints as the published code of 2021 leaves them: its names and shapes, in Lightning's file."""

import argparse
import sys
import types
from pathlib import Path

import torch


def published_shapes(channels: int, classes: int, levels: int, filters: int) -> dict[str, tuple[int, ...]]:
    """Name and shape of every weight (models/unet.py, models/layers.py of NVIDIA's nnU-Net)."""
    widths = [min(filters * 2**level, 320) for level in range(levels)]
    found: dict[str, tuple[int, ...]] = {}

    def block(name: str, inside: int, outside: int) -> None:
        for number, start in ((1, inside), (2, outside)):
            found[f"{name}.conv{number}.conv.weight"] = (outside, start, 3, 3, 3)
            found[f"{name}.conv{number}.norm.weight"] = (outside,)
            found[f"{name}.conv{number}.norm.bias"] = (outside,)

    def head(name: str, inside: int) -> None:
        found[f"{name}.conv.weight"] = (classes, inside, 1, 1, 1)
        found[f"{name}.conv.bias"] = (classes,)

    block("input_block", channels, widths[0])
    for level in range(1, levels - 1):
        block(f"downsamples.{level - 1}", widths[level - 1], widths[level])
    block("bottleneck", widths[-2], widths[-1])
    for number, level in enumerate(range(levels - 2, -1, -1)):
        found[f"upsamples.{number}.transp_conv.weight"] = (widths[level + 1], widths[level], 2, 2, 2)
        found[f"upsamples.{number}.transp_conv.bias"] = (widths[level],)
        block(f"upsamples.{number}.conv_block", 2 * widths[level], widths[level])
    head("output_block", widths[0])
    for level in range(1, levels - 1):
        head(f"deep_supervision_heads.{level - 1}", widths[level])
    return found


def save(state: dict[str, torch.Tensor], path: Path) -> None:
    """Write a whole Lightning 1.0 checkpoint: callbacks' classes are keys, the arguments a Namespace."""
    callbacks = {}
    for file, name in (("early_stopping", "EarlyStopping"), ("model_checkpoint", "ModelCheckpoint")):
        module = f"pytorch_lightning.callbacks.{file}"
        kind = type(name, (), {"__module__": module})
        for part in ("pytorch_lightning", "pytorch_lightning.callbacks", module):  # pickle looks it up
            sys.modules[part] = types.ModuleType(part)
        setattr(sys.modules[module], name, kind)
        callbacks[kind] = {"best_score": torch.tensor(0.7), "dirpath": "/results/checkpoints"}
    document = {
        "epoch": 150,
        "global_step": 29100,
        "pytorch-lightning_version": "1.0.0",
        "callbacks": callbacks,
        "state_dict": {f"model.{key}": value for key, value in state.items()},
        "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"params": [0]}]}],
        "lr_schedulers": [],
        "hyper_parameters": {"args": argparse.Namespace(dim=3, gpus=8), "bermuda": False, "data_dir": None},
    }
    torch.save(document, path)
    for module in [name for name in sys.modules if name.startswith("pytorch_lightning")]:
        del sys.modules[module]  # whoever reads the file does not have it
