"""A small FastPitch that learns the voice of data/speech.npz in well under a minute on a CPU."""

import numpy as np
import torch
from network import MEL_BINS, FastPitch, Size
from numpy.typing import NDArray
from speech import Shipped
from torch import Tensor

# Found by trial on the held-out lines.
SPOKEN, SILENT = 8, 16  # lines a step with and without mels
LEARNING_RATE, WARM_UP = 4e-3, 0.1
DURATION_WEIGHT, PITCH_WEIGHT = 2.0, 0.1  # of the losses, beside the mels' 1
LARGEST_GRADIENT = 1.0


def train(shipped: Shipped, size: Size, steps: int, seed: int) -> FastPitch:
    """Train on random lines; durations and pitches are the recorded ones where the mel is made of them.

    Lines without a mel teach durations and pitches only, at the small price of the encoder. Switches torch to
    one thread, since more gain little on tensors this small and lose much on a busy machine, and to
    deterministic algorithms: the same arguments on the same machine give the same weights.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    rng = np.random.default_rng(seed)
    network = FastPitch(size, shipped.tokens.shape[1]).train()
    with torch.no_grad():
        network.mel.bias.copy_(torch.from_numpy(np.concatenate(shipped.spoken.mels).mean(axis=0)))
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=steps, pct_start=WARM_UP
    )
    spoken = len(shipped.spoken.mels)
    silent = len(shipped.tokens) - spoken
    for step in range(steps):
        lines = rng.choice(spoken, SPOKEN, replace=False)
        rows = np.concatenate([lines + silent, rng.choice(silent, SILENT, replace=False)])
        loss = _loss(network, shipped, rows, [shipped.spoken.mels[line] for line in lines])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), LARGEST_GRADIENT)
        optimizer.step()
        schedule.step()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1}/{steps} loss {loss.item():.2f}", flush=True)
    return network.eval()


def _loss(
    network: FastPitch, shipped: Shipped, rows: NDArray[np.int64], mels: list[NDArray[np.float32]]
) -> Tensor:
    """Absolute error of the mels of the first rows, squared errors of all rows' log durations and pitches."""
    values = (shipped.tokens, shipped.durations, shipped.pitches)
    tokens, durations, pitches = (torch.from_numpy(array[rows]) for array in values)
    encoded, mask = network.encode(tokens)
    inside = mask.squeeze(-1)
    duration = network.duration(encoded, mask) - (durations + 1).float().log()
    pitch = network.pitch(encoded, mask) - pitches
    timing = DURATION_WEIGHT * duration[inside].square().mean() + PITCH_WEIGHT * pitch[inside].square().mean()
    spoken = slice(len(mels))
    mel, frames = network.speak(encoded[spoken], pitches[spoken], durations[spoken])
    wanted = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(mel) for mel in mels], batch_first=True)
    return timing + (mel - wanted).abs().sum() / (frames.sum() * MEL_BINS)
