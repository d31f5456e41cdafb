"""What the tests of the model plug-ins share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tasks import prepare
from tasks.core.build import Workplace, build
from tasks.core.matrix import Selection, expand
from tasks.core.plugins import load_model, load_profile
from tasks.core.site import ROOT, Site, default_site


@pytest.fixture(scope="session")
def prepared(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder that a model's prepare.py made of its tiny variant, by way of the tests' shared store."""
    root = tmp_path_factory.mktemp("prepared")
    (root / "store").symlink_to(store)
    site: Site = default_site().model_copy(update={"home": root, "models": ROOT / "models"})

    def prepare_tiny(name: str) -> Path:
        plugin = load_model(site.models, name)
        profile = load_profile(site.profiles, "cpu")
        plan = expand(
            plugin.spec,
            "tiny",
            profile,
            generator="client",
            triton_release="24.10",
            selection=Selection(),
        )
        at = Workplace(site=site, plugin=plugin.folder, logs=root, profile="cpu", cell=name, timeout_s=600)
        request = prepare.request(plugin, plan.cells[0].product, site)
        return site.store.path(build(request, at, files={"sources": site.sources / name}))

    return prepare_tiny
