"""The Prefect server of a command that has none."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

from flows.local_server import running, settings
from servegrid.store.site import Site


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
