"""The classifier as a PyTorch module."""

from typing import Any

import numpy as np
import torch


def get_model(weights: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Logits [b, 3] of points [b, 4]."""
    module = torch.nn.Linear(4, 3, bias=False).eval()
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(np.load(weights)))
    return module, {"inputs": ["input__0"], "outputs": ["output__0"]}
