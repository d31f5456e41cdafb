"""Checkpoints with the names of the published FastPitch."""

import pickle
from pathlib import Path
from typing import Any

import torch
from network import FastPitch

# Names of NVIDIA DeepLearningExamples, PyTorch/SpeechSynthesis/FastPitch: fastpitch/model.py,
# fastpitch/transformer.py and common/layers.py, as published with nvidia_fastpitch_200518.pt.
BLOCK = {
    "attention.inside.weight": "dec_attn.qkv_net.weight",
    "attention.inside.bias": "dec_attn.qkv_net.bias",
    "attention.outside.weight": "dec_attn.o_net.weight",
    "attention.norm.weight": "dec_attn.layer_norm.weight",
    "attention.norm.bias": "dec_attn.layer_norm.bias",
    "convolutions.wide.weight": "pos_ff.CoreNet.0.weight",
    "convolutions.wide.bias": "pos_ff.CoreNet.0.bias",
    "convolutions.narrow.weight": "pos_ff.CoreNet.2.weight",
    "convolutions.narrow.bias": "pos_ff.CoreNet.2.bias",
    "convolutions.norm.weight": "pos_ff.layer_norm.weight",
    "convolutions.norm.bias": "pos_ff.layer_norm.bias",
}
PREDICTOR = {
    "convolutions.0.weight": "layers.0.conv.weight",
    "convolutions.0.bias": "layers.0.conv.bias",
    "norms.0.weight": "layers.0.norm.weight",
    "norms.0.bias": "layers.0.norm.bias",
    "convolutions.1.weight": "layers.1.conv.weight",
    "convolutions.1.bias": "layers.1.conv.bias",
    "norms.1.weight": "layers.1.norm.weight",
    "norms.1.bias": "layers.1.norm.bias",
    "last.weight": "fc.weight",
    "last.bias": "fc.bias",
}
REST = {
    "embedding.weight": "encoder.word_emb.weight",
    "pitch_embedding.weight": "pitch_emb.weight",
    "pitch_embedding.bias": "pitch_emb.bias",
    "mel.weight": "proj.weight",
    "mel.bias": "proj.bias",
}
BUFFERS = ("encoder.pos_emb.inv_freq", "decoder.pos_emb.inv_freq", "pitch_mean", "pitch_std")
"""Published beside the weights: frequencies that the code fixes, and statistics that only training used."""


def published_names(layers: int) -> dict[str, str]:
    """Our name of every weight -> its published name."""
    names = dict(REST)
    for side in ("encoder", "decoder"):
        for index in range(layers):
            names |= {f"{side}.{index}.{a}": f"{side}.layers.{index}.{b}" for a, b in BLOCK.items()}
    for ours, theirs in (("duration", "duration_predictor"), ("pitch", "pitch_predictor")):
        names |= {f"{ours}.{a}": f"{theirs}.{b}" for a, b in PREDICTOR.items()}
    return names


def save(network: FastPitch, path: Path) -> None:
    """Write the network as a checkpoint with the published layout and names."""
    names = published_names(len(network.encoder))
    torch.save({"state_dict": {names[k]: v for k, v in network.state_dict().items()}}, path)


def load(network: FastPitch, path: str) -> None:
    """Give the network the weights of a checkpoint, all of them.

    path: a torch.save file, {"state_dict": ...} with the published names, `module.` before them or not.
    Raises ValueError naming the file and what is missing, unexpected or of another shape.
    """
    state = _read_state(path)
    own = network.state_dict()
    names = published_names(len(network.encoder))
    missing = [name for name in names.values() if name not in state]
    unexpected = [name for name in state if name not in {*names.values(), *BUFFERS}]
    shapes = [
        f"{theirs} has {tuple(state[theirs].shape)}, expected {tuple(own[ours].shape)}"
        for ours, theirs in names.items()
        if theirs in state and state[theirs].shape != own[ours].shape
    ]
    found = {"missing": missing, "unexpected": unexpected, "wrong shapes": shapes}
    if problems := [f"{title}: {', '.join(items)}" for title, items in found.items() if items]:
        raise ValueError(
            f"{path}: not the FastPitch that model.yaml describes; {'; '.join(problems)}. "
            f"Put nvidia_fastpitch_200518.pt there, or change the variant's parameters"
        )
    network.load_state_dict({ours: state[theirs] for ours, theirs in names.items()})


def _read_state(path: str) -> dict[str, torch.Tensor]:
    try:
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, EOFError) as error:
        raise ValueError(f"{path}: not a checkpoint that holds weights only ({error})") from error
    state = loaded.get("state_dict") if isinstance(loaded, dict) else None
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ValueError(f'{path}: expected {{"state_dict": names and tensors}}, as published')
    return {name.removeprefix("module."): value for name, value in state.items()}
