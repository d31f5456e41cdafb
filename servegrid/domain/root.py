"""The folder with the data that the packages read."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(os.environ.get("SERVEGRID_ROOT", Path(__file__).resolve().parents[2])).absolute()
"""The folder with models/, gpu_profiles/ and triton_releases.yaml: SERVEGRID_ROOT, by default the
checkout."""
