"""Where things lie on this host."""

from __future__ import annotations

import os
from pathlib import Path

from tasks.core.store import Store
from tasks.core.values import Value

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: it carries models/ and gpu_profiles/ beside the packages."""


class Site(Value):
    """The folders of one installation.

    home: store, private server and tools; models, profiles: plug-ins and data;
    sources: what users put there (checkpoints, data sets), one folder a model; results: campaigns.
    """

    home: Path
    models: Path
    profiles: Path
    sources: Path
    results: Path

    @property
    def store(self) -> Store:
        return Store(self.home / "store")


def default_site() -> Site:
    """The site of this checkout; SERVEGRID_HOME, _MODELS, _PROFILES, _SOURCES, _RESULTS move its folders."""
    home = Path(os.environ.get("SERVEGRID_HOME", ROOT / ".servegrid")).absolute()
    return Site(
        home=home,
        models=Path(os.environ.get("SERVEGRID_MODELS", ROOT / "models")).absolute(),
        profiles=Path(os.environ.get("SERVEGRID_PROFILES", ROOT / "gpu_profiles")).absolute(),
        sources=Path(os.environ.get("SERVEGRID_SOURCES", ROOT / "sources")).absolute(),
        results=Path(os.environ.get("SERVEGRID_RESULTS", ROOT / "results")).absolute(),
    )
