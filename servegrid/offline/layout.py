"""The folder's files. Only the standard library is imported here: a bare host installs from the folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

EXTRAS = ("torch", "tensorflow", "onnx", "tensorrt-rtx", "dev")
"""The project's extras that `make` installs."""


@dataclass(frozen=True)
class Folder:
    """What lies in a folder for a host without a network."""

    path: Path

    @property
    def facts(self) -> Path:
        """`{"python": "3.11"}`."""
        return self.path / "offline.json"

    @property
    def requirements(self) -> Path:
        """Requirements of pip, a line each."""
        return self.path / "requirements.txt"

    @property
    def wheels(self) -> Path:
        """The wheels; pip's `--find-links`."""
        return self.path / "wheels"

    @property
    def packages(self) -> Path:
        """The .deb files."""
        return self.path / "packages"
