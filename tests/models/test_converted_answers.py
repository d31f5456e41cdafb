"""A fault of the conversion and a fault of serving are told apart, in both frameworks.

The fault: the same network with other weights, converted from them or served in place of the right artifact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servegrid.checks.verdict import Correctness
from servegrid.domain.server import ServerChoice
from servegrid.domain.values import ArtifactRef
from servegrid.servers import embedded, server
from servegrid.store.build import build
from servegrid.store.site import Site
from tasks.configure import configure
from tasks.correctness import Proofs, correctness
from tasks.deploy import deploy
from tasks.reference import converted_request

pytestmark = pytest.mark.check

CELLS = [("fastpitch", "ts-trace"), ("wide_and_deep", "tf-savedmodel")]


@pytest.fixture(scope="module", params=CELLS, ids=[name for name, _ in CELLS])
def cell(request: pytest.FixtureRequest, tiny_cell: Callable[..., Any]) -> Any:
    name, format_ = request.param
    return tiny_cell(name, format_)


@pytest.fixture(scope="module")
def wrong(cell: Any) -> ArtifactRef:
    """The same product, converted from random weights."""
    product = cell.cell.product.model_copy(update={"random_weights": True})
    other = replace(cell, cell=cell.cell.model_copy(update={"product": product}))
    vars(other)["prepared"] = None
    return other.converted


@pytest.fixture(scope="module")
def judge(cell: Any, site: Site, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Correctness]:
    """`judge(converted, served)`: the cell's correctness with these two artifacts."""
    if problems := embedded.problems(site):
        pytest.skip("; ".join(problems))

    def found(converted: ArtifactRef, served: ArtifactRef) -> Correctness:
        folder: Path = tmp_path_factory.mktemp("judged")
        at = cell.at.model_copy(update={"logs": folder / "logs"})
        request = converted_request(cell.plugin, cell.cell, converted, cell.samples)
        proofs = Proofs(
            prepared=cell.prepared,
            samples=cell.samples,
            reference=cell.reference,
            converted_answers=build(request, at),
        )
        configured = configure.fn(cell.cell, served, folder / "repository", at)
        with server(ServerChoice(), site, configured.repository, folder / "server.log") as running:
            endpoint = deploy.fn(running, configured, cell.cell.dynamic, cell.samples, at)
            return correctness.fn(cell.plugin, cell.cell, endpoint, proofs, at)

    return found


def test_a_right_conversion_that_is_served_right_has_the_frameworks_metric_three_times(
    cell: Any, judge: Callable[..., Correctness]
) -> None:
    found = judge(cell.converted, cell.converted)
    assert found.failures == ()
    assert found.scores is not None
    assert found.scores.framework == pytest.approx(found.scores.converted, abs=1e-3)
    assert found.scores.converted == pytest.approx(found.scores.served, abs=1e-6)


def test_a_conversion_that_breaks_the_metric_is_named_before_serving(
    judge: Callable[..., Correctness], wrong: ArtifactRef
) -> None:
    found = judge(wrong, wrong)
    assert found.scores is not None
    assert found.scores.converted == pytest.approx(found.scores.served, abs=1e-3)
    assert "before it is served" in found.failures[0]


def test_a_server_that_breaks_the_metric_leaves_the_conversion_right(
    cell: Any, judge: Callable[..., Correctness], wrong: ArtifactRef
) -> None:
    found = judge(cell.converted, wrong)
    assert found.scores is not None and found.scores.converted is not None
    assert found.scores.framework == pytest.approx(found.scores.converted, abs=1e-3)
    assert found.failures
    assert not [why for why in found.failures if "before it is served" in why]
