"""What Triton releases carry: the file holds figures with sources, and agrees with what runs here."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tasks.core.releases import PATH, Releases, image, load_releases
from tasks.core.rules import NATIVE_UNTIL
from tasks.servers.embedded import TRITON_RELEASE


def test_releases_of_the_published_tables_are_there() -> None:
    found = load_releases()
    assert {"20.12", "21.02", "21.10", "24.10", "25.02"} < set(found.releases)
    assert set(NATIVE_UNTIL.values()) == {found.last_tensorflow}
    assert image("25.02") == "nvcr.io/nvidia/tritonserver:25.02-py3"


def test_the_embedded_server_is_one_of_them(server: Any) -> None:
    assert load_releases().releases[TRITON_RELEASE].server == server.running.version


@pytest.mark.parametrize(
    ("change", "wrong"),
    [({"tensorrt": "10.4"}, "sources.tensorrt"), ({"cuda": None}, "sources.cuda"), ({"cudnn": "9"}, "cudnn")],
)
def test_figure_without_a_source_is_refused(change: dict[str, Any], wrong: str) -> None:
    data = yaml.safe_load(PATH.read_text())
    data["releases"]["24.10"] |= change
    with pytest.raises(ValidationError, match=wrong):
        Releases.model_validate(data)
