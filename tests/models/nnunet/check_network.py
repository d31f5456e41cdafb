"""Prints what tests ask of checkpoints and of the network's plan, as JSON. Argument: a folder to write to."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from model import get_model
from monai.transforms import NormalizeIntensity
from network import build
from published_checkpoint import published_shapes, save
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from volume import normalize

PATH = Path(sys.argv[1]) / "published.ckpt"
FULL, SMALL = (4, 4, 6, 32), (4, 3, 4, 2)  # channels, classes, levels, filters


def full_size() -> dict[str, object]:
    """Load a published checkpoint; each tensor holds one value of its own, stored once: the file is small."""
    shapes = published_shapes(*FULL)
    values = {key: float(torch.randn(())) for key in shapes}
    save({key: torch.full((1,), values[key]).expand(shape) for key, shape in shapes.items()}, PATH)
    module, names = get_model(*FULL, str(PATH))
    weights = list(module.parameters())
    kept = sorted(value for key, value in values.items() if "supervision" not in key)
    return {
        "names": names,
        "training": module.training,
        "parameters": sum(p.numel() for p in weights),
        "complete": sorted(float(p.flatten()[0]) for p in weights) == kept
        and all(float(p.min()) == float(p.max()) for p in weights),
    }


def plan() -> dict[str, object]:
    """Kernels, strides, shapes and work of the full network, found without computing anything."""
    shapes: list[list[int]] = []
    with torch.device("meta"):
        network, counter = build(*FULL).eval(), FlopCounterMode(display=False)
        blocks = [network.input_block, *network.downsamples, network.bottleneck]
        for block in blocks:
            block.register_forward_hook(lambda module, x, y: shapes.append(list(y.shape[1:])))
        with counter:
            output = network(torch.empty(1, 4, 128, 128, 128))
    return {
        "kernels": [list(block.conv1.conv.kernel_size) for block in blocks],
        "strides": [list(block.conv1.conv.stride) for block in blocks],
        "levels": shapes,
        "output": list(output.shape),
        "flops": counter.get_total_flops(),
    }


def published_forward(state: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """The published network of four levels, written out with the published names."""

    def block(name: str, x: torch.Tensor, stride: int) -> torch.Tensor:
        for number, step in ((1, stride), (2, 1)):
            x = functional.conv3d(x, state[f"{name}.conv{number}.conv.weight"], stride=step, padding=1)
            weight, bias = (state[f"{name}.conv{number}.norm.{kind}"] for kind in ("weight", "bias"))
            x = functional.leaky_relu(functional.instance_norm(x, None, None, weight, bias), 0.01)
        return x

    skips = [block("input_block", x, 1)]
    for index in range(2):
        skips.append(block(f"downsamples.{index}", skips[-1], 2))
    y = block("bottleneck", skips[-1], 2)
    for index in range(3):
        weight, bias = (state[f"upsamples.{index}.transp_conv.{kind}"] for kind in ("weight", "bias"))
        up = functional.conv_transpose3d(y, weight, bias, stride=2)
        y = block(f"upsamples.{index}.conv_block", torch.cat([up, skips[-1 - index]], 1), 1)
    return functional.conv3d(y, state["output_block.conv.weight"], state["output_block.conv.bias"])


def small_size(state: dict[str, torch.Tensor]) -> dict[str, object]:
    """How far loaded networks are from the published forward pass; what random weights give."""
    x = torch.randn(2, 4, 16, 16, 16)
    with torch.inference_mode():
        want = published_forward(state, x)
        save(state, PATH)
        loaded = get_model(*SMALL, str(PATH))[0]
        apart = [float((loaded(x) - want).abs().max() / want.abs().max())]
        # The later published code has DynUNet itself: all its names, each weight again below skip_layers.
        save(loaded.state_dict(), PATH)
        loaded = get_model(*SMALL, str(PATH))[0]
        apart.append(float((loaded(x) - want).abs().max() / want.abs().max()))
        once, again = get_model(*SMALL)[0](x), get_model(*SMALL)[0](x)
    return {
        "apart": apart,
        "random": [torch.equal(once, again), bool(once.isfinite().all()), float(once.std())],
    }


def refused(state: dict[str, torch.Tensor]) -> dict[str, str]:
    """The error of loading each wrong file."""
    found, bias = {}, "output_block.conv.bias"

    def attempt(change: str) -> None:
        try:
            get_model(*SMALL, str(PATH))
        except ValueError as error:
            found[change] = str(error).replace(str(PATH), "FILE")

    save({key: value for key, value in state.items() if key != bias}, PATH)
    attempt("missing")
    save({**state, "loss.weight": torch.zeros(2)}, PATH)
    attempt("extra")
    save({**state, bias: torch.zeros(1)}, PATH)
    attempt("shape")
    torch.save(state, PATH)
    attempt("bare")
    torch.save({"state_dict": {}, "code": FlopCounterMode}, PATH)
    attempt("code")
    PATH.write_bytes(b"junk")
    attempt("junk")
    return found


def normalized() -> float:
    """Largest difference to what the published preprocessing calls; one channel is empty, one constant."""
    image = torch.randn(4, 5, 6, 7).relu() + torch.rand(4, 1, 1, 1)
    image[0], image[1] = 0, 3
    theirs = NormalizeIntensity(nonzero=True, channel_wise=True)(image.clone())
    return float(np.abs(normalize(image.numpy()) - np.asarray(theirs)).max())


torch.manual_seed(7)
small = {
    key: torch.randn(shape) / max(1.0, float(np.prod(shape[1:]))) ** 0.5
    for key, shape in published_shapes(*SMALL).items()
}
results = {"full": full_size(), "plan": plan(), **small_size(small), "refused": refused(small)}
print(json.dumps({**results, "normalized": normalized()}))
