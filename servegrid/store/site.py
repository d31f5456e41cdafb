"""The folders of servegrid on this host."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from servegrid.domain.errors import UserError
from servegrid.domain.values import Value

if TYPE_CHECKING:
    from servegrid.store.store import Store
from servegrid.domain.root import ROOT


class Site(Value):
    """The folders of one installation.

    home: store, private server and tools; models, profiles: model folders and GPU profiles;
    sources: the users' checkpoints and data sets, one folder a model; results: campaigns.
    """

    home: Path
    models: Path
    profiles: Path
    sources: Path
    results: Path

    @property
    def store(self) -> Store:
        from servegrid.store.store import Store  # loaded late: a command's help does not need it

        return Store(self.home / "store")


def default_site() -> Site:
    """The site of ROOT; SERVEGRID_HOME, _MODELS, _PROFILES, _SOURCES, _RESULTS move its folders.

    Raises:
        UserError: there is no ROOT.
    """
    if not (ROOT / "gpu_profiles").is_dir():
        raise UserError(
            f"{ROOT}: no gpu_profiles/ there; set SERVEGRID_ROOT to a folder that has models/, gpu_profiles/ "
            "and triton_releases.yaml of a checkout"
        )
    home = Path(os.environ.get("SERVEGRID_HOME", ROOT / ".servegrid")).absolute()
    return Site(
        home=home,
        models=Path(os.environ.get("SERVEGRID_MODELS", ROOT / "models")).absolute(),
        profiles=Path(os.environ.get("SERVEGRID_PROFILES", ROOT / "gpu_profiles")).absolute(),
        sources=Path(os.environ.get("SERVEGRID_SOURCES", ROOT / "sources")).absolute(),
        results=Path(os.environ.get("SERVEGRID_RESULTS", ROOT / "results")).absolute(),
    )
