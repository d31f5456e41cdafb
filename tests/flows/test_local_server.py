"""The Prefect server of a command that has none."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from flows.local_server import api, running, settings
from servegrid.domain.errors import UserError
from servegrid.store.site import Site


@pytest.mark.fault(
    "Disks", "one line that names the home and its space", what="the home's is full as a command starts"
)
def test_full_disk_of_the_home(disk: Any, monkeypatch: pytest.MonkeyPatch, happened: Any) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    disk.fill()
    with pytest.raises(UserError, match="space left") as caught, api(Site.model_construct(home=disk.path)):
        pytest.fail("Prefect's server would have started")
    assert str(disk.path) in str(caught.value) and "\n" not in str(caught.value)
    happened(caught.value)


def test_two_commands_start_their_servers_in_a_new_home_at_once(tmp_path: Path) -> None:
    both = Barrier(2)

    def start(name: str) -> Any:
        env = settings(Site.model_construct(home=tmp_path))
        both.wait()
        with running(tmp_path / f"{name}.log", env) as url:
            both.wait(timeout=120)  # two servers run at the same time
            with urllib.request.urlopen(url.removesuffix("api") + "ui-settings", timeout=30) as answer:
                assert json.load(answer)["api_url"] == url, "the UI finds its API"
            request = urllib.request.Request(f"{url}/flows/", json.dumps({"name": name}).encode())
            request.add_header("Content-Type", "application/json")
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)["name"]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(start, ("one", "two"))) == ["one", "two"]
