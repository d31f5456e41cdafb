"""The model file and its samples, as they were brought."""

import shutil
from pathlib import Path
from typing import Any


def prepare(variant: str, output: Path, sources: Path, parameters: dict[str, Any]) -> dict[str, str]:
    """Everything below `data/`: the model file, and `samples.npz` with an array for each input."""
    shutil.copytree(Path(__file__).parent / "data", output, dirs_exist_ok=True)
    return {"samples": "samples.npz"}
