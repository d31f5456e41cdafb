"""The network, and weights under published names."""

import argparse
import re
from typing import Any

import torch
from monai.networks.nets import DynUNet

WIDEST = 320  # channels; nnU-Net stops doubling there in 3D
PREFIX = "model."  # where the published LightningModule keeps its network

# Published name -> DynUNet's. The release that the published deployment is of has a network of its own:
# models/unet.py and models/layers.py of PyTorch/Segmentation/nnUNet in NVIDIA's DeepLearningExamples, 2021.
RENAMED = (
    (re.compile(r"\.conv([12])\.norm\."), r".norm\1."),
    (re.compile(r"\.transp_conv\.(?=weight|bias)"), ".transp_conv.conv."),
    (re.compile(r"^output_block\.conv\.(?=weight|bias)"), "output_block.conv.conv."),
)
# Heads on the inner levels steer the training alone: four in early 2021, later fewer or none.
HEADS = re.compile(r"^deep_supervision_heads\.\d\.conv\.(weight|bias)$")
# A whole Lightning checkpoint also names, with tensors and plain values, the type of the training's
# arguments, and the classes of its callbacks, as keys of their states.
CALLBACKS = (
    "pytorch_lightning.callbacks.early_stopping.EarlyStopping",
    "pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint",
)


class _Callback:
    """Stands for a callback's class, so that reading a checkpoint runs none of Lightning's code."""


def build(channels: int, classes: int, levels: int, filters: int) -> DynUNet:
    """nnU-Net of isotropic volumes: `levels` resolutions, each half of the last; `filters` channels first.

    The published plan of Decathlon task 01 (get_unet_params in utils/utils.py: patches of 128, spacing 1) has
    kernels of 3 and six levels, 32 channels at the first. Weights come from torch's global generator.
    """
    strides = [1] + [2] * (levels - 1)
    return DynUNet(
        spatial_dims=3,
        in_channels=channels,
        out_channels=classes,
        kernel_size=[3] * levels,
        strides=strides,
        upsample_kernel_size=strides[1:],
        filters=[min(filters * 2**level, WIDEST) for level in range(levels)],
        trans_bias=True,
    )


def load_weights(network: DynUNet, checkpoint: str) -> None:
    """Fill the network from a Lightning checkpoint, {"state_dict": {"model.<name>": tensor}, ...}.

    Names are the published network's, or DynUNet's. Only weights are unpickled. Raises ValueError naming the
    file and the keys that are missing, unexpected or of another shape.
    """
    state = _read_state(checkpoint)
    expected = dict(network.named_parameters())  # each once; state_dict() repeats all below skip_layers
    missing = [key for key in expected if key not in state]
    unexpected = [key for key in state if key not in expected]
    shapes = [
        f"{key} has {tuple(state[key].shape)}, expected {tuple(value.shape)}"
        for key, value in expected.items()
        if key in state and state[key].shape != value.shape
    ]
    found = {"missing keys": missing, "unexpected keys": unexpected, "wrong shapes": shapes}
    problems = [f"{title}: {', '.join(items)}" for title, items in found.items() if items]
    if problems:
        raise ValueError(f"{checkpoint} does not fit the network of model.yaml; {'; '.join(problems)}")
    with torch.no_grad():
        for key, value in expected.items():
            value.copy_(state[key])


def _read_state(checkpoint: str) -> dict[str, torch.Tensor]:
    """Read the weights, without the heads, under DynUNet's names."""
    allowed: list[Any] = [argparse.Namespace, *((_Callback, name) for name in CALLBACKS)]
    try:
        with torch.serialization.safe_globals(allowed):
            loaded: Any = torch.load(checkpoint, map_location="cpu", weights_only=True)
    except Exception as error:  # on a file of another kind the unpickler fails in any way
        advice = 'write {"state_dict": ...} of the checkpoint alone with torch.save'
        raise ValueError(f"{checkpoint}: cannot be read as weights ({error}); {advice}") from error
    state = loaded.get("state_dict") if isinstance(loaded, dict) else None
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ValueError(f'{checkpoint}: expected {{"state_dict": {{"{PREFIX}<name>": tensor, ...}}}}')
    named = {_rename(key.removeprefix(PREFIX)): value for key, value in state.items()}
    # DynUNet's own state_dict repeats every weight, and every head, under this name.
    return {k: v for k, v in named.items() if not HEADS.match(k) and not k.startswith("skip_layers.")}


def _rename(key: str) -> str:
    for pattern, replacement in RENAMED:
        key = pattern.sub(replacement, key)
    return key
