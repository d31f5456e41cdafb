"""The checkpoint and its samples, as they were brought."""

import shutil
from pathlib import Path
from typing import Any


def prepare(variant: str, output: Path, sources: Path, parameters: dict[str, Any]) -> dict[str, str]:
    """`checkpoint/` with the config and weights, and `samples.npz` with an array for each input."""
    data = Path(__file__).parent / "data"
    shutil.copytree(data / "checkpoint", output / "checkpoint")
    shutil.copy(data / "samples.npz", output)
    return {"checkpoint": "checkpoint", "samples": "samples.npz"}
