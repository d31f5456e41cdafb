"""A small nnU-Net that learns made-up tumours in well under a minute on a CPU."""

import numpy as np
import torch
from monai.networks.nets import DynUNet
from network import build
from numpy.typing import NDArray
from volume import Volume

# All constants below were found by trial on held-out volumes.
BATCH = 8
LEARNING_RATE, WEIGHT_DECAY, WARM_UP = 0.02, 1e-4, 0.15


def train(
    volumes: Volume, classes: NDArray[np.uint8], count: int, levels: int, filters: int, steps: int, seed: int
) -> DynUNet:
    """Train on batches of BATCH volumes in order, over and over, flipped at random after the first pass.

    volumes: [n, channels, size, size, size]; classes: [n, size, size, size], numbers below `count`. Prints
    the loss every 25 steps. Switches torch to deterministic algorithms and to one thread: the same arguments
    on the same machine give the same weights, and layers this small gain nothing from more.
    """
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    network = build(volumes.shape[1], count, levels, filters).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=steps, pct_start=WARM_UP
    )
    for step in range(steps):
        rows = np.arange(step * BATCH, (step + 1) * BATCH) % len(volumes)
        x, y = torch.from_numpy(volumes[rows]), torch.from_numpy(classes[rows].astype(np.int64))
        if step * BATCH >= len(volumes):
            axes = np.flatnonzero(rng.random(3) < 0.5)
            x, y = x.flip([int(a) + 2 for a in axes]), y.flip([int(a) + 1 for a in axes])
        loss = loss_of(network(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (step + 1) % 25 == 0:
            print(f"step {step + 1}/{steps} loss {loss.item():.3f}", flush=True)
    network.eval()
    return network


def loss_of(logits: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """Weighted cross entropy, and one minus the soft Dice of the foreground, as nnU-Net adds them up."""
    hot = torch.nn.functional.one_hot(classes, logits.shape[1]).movedim(-1, 1).to(logits.dtype)
    share = logits.softmax(1)
    both, either = ((share * hot).sum((2, 3, 4)), (share + hot).sum((2, 3, 4)))
    dice = (2 * both + 1) / (either + 1)
    # A small class counts for so little by its frequency alone that narrow networks give it up.
    weight = hot.mean((0, 2, 3, 4)).clamp(min=1e-3) ** -0.5
    return torch.nn.functional.cross_entropy(logits, classes, weight) + 1 - dice[:, 1:].mean()
