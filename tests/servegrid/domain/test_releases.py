"""Triton's releases: the file holds figures with sources, and agrees with the installed server."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from servegrid.domain.releases import PATH, Releases, fitting, image, load_releases, why_not_on
from servegrid.servers.embedded import TRITON_RELEASE


def test_releases_of_the_published_tables_are_there() -> None:
    found = load_releases()
    assert {"20.12", "21.02", "21.10", "24.10", "25.02"} < set(found.releases)
    assert found.last_tensorflow in found.releases
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


@pytest.mark.parametrize(
    ("capability", "fits", "not_fits"),
    [
        ("7.0", {"20.12", "24.10"}, {"25.02", "26.10"}),
        ("7.5", {"20.12", "25.02", "26.10"}, {"26.08"}),
        ("8.6", {"20.12", "25.02"}, set()),
        ("9.0", {"24.10", "25.02"}, {"20.12", "21.10"}),
    ],
)
def test_release_fits_a_card_that_its_cuda_knows_and_that_it_still_supports(
    capability: str, fits: set[str], not_fits: set[str]
) -> None:
    found = set(fitting(capability, load_releases()))
    assert fits <= found
    assert not found & not_fits


def test_the_reason_why_a_release_does_not_fit_is_given() -> None:
    known = load_releases()
    assert why_not_on("24.10", "7.0", known) is None
    assert why_not_on("25.02", "7.0", known) == "Triton 25.02 wants compute capability 7.5, not 7.0"
    assert "has CUDA 11.4.2; compute capability 8.9 wants 11.8" in str(why_not_on("21.10", "8.9", known))
    assert "does not tell" in str(why_not_on("26.08", "9.0", known))
    assert "does not tell" in str(why_not_on("24.10", "13.0", known))
