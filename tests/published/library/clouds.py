"""The part of a model's training code on --plugin-path: its network and its data."""

import numpy as np
import torch


class Perceptron(torch.nn.Module):
    """Two layers; the first separates points by the sign of each axis."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(2, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 2)
        )

    def forward(self, input__0: torch.Tensor) -> torch.Tensor:
        return self.layers(input__0)


def points(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of two clouds, around (-1, -1) and (1, 1), and which of the two each is of."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, size=count)
    centres = (2 * labels - 1)[:, None]
    return (centres + 0.3 * rng.normal(size=(count, 2))).astype(np.float32), labels
