"""Where the data lie that the packages read."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(os.environ.get("SERVEGRID_ROOT", Path(__file__).resolve().parents[2])).absolute()
"""The folder that carries models/, gpu_profiles/ and triton_releases.yaml: the checkout, where the packages
lie beside them, or, where those are installed elsewhere, what SERVEGRID_ROOT names."""
