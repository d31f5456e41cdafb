"""Properties of every spec, key, matrix and table of rows, not of chosen examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from servegrid.campaign.columns import MEASURED, OBJECTS
from servegrid.campaign.results import CELLS, MEASUREMENTS, published_columns, read
from servegrid.domain.profile import GpuProfile, ProfileRule
from servegrid.domain.releases import load_releases
from servegrid.domain.slo import parse
from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import ArtifactRef
from servegrid.plan.matrix import expand
from servegrid.plan.selection import Selection
from servegrid.reporting.charts import of_campaign
from servegrid.reporting.history import moves, past
from servegrid.reporting.html import page
from servegrid.reporting.markdown import document
from servegrid.reporting.tables import tables
from servegrid.store.store import BuildRequest

SCALARS: Any = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
DOCUMENTS: Any = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)
NAMED = st.dictionaries(st.text(min_size=1, max_size=6), st.text(max_size=6), max_size=3)
DIGESTS = st.text("0123456789abcdef", min_size=64, max_size=64)
REQUESTS = st.builds(
    BuildRequest,
    stage=st.text(min_size=1, max_size=8),
    version=st.integers(0, 9),
    fields=st.dictionaries(st.text(max_size=6), DOCUMENTS, max_size=4),
    inputs=st.dictionaries(
        st.text(max_size=6),
        st.builds(ArtifactRef, digest=DIGESTS, path=st.text(max_size=9), size=st.integers(0)),
        max_size=3,
    ),
    sources=NAMED,
    libraries=NAMED,
)
anything = settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def reversed_everywhere(value: Any) -> Any:
    """The same document, every mapping in the opposite order."""
    if isinstance(value, dict):
        return {key: reversed_everywhere(value[key]) for key in reversed(value)}
    return [reversed_everywhere(entry) for entry in value] if isinstance(value, list) else value


@given(request=REQUESTS)
@anything
def test_order_never_changes_a_key(request: BuildRequest) -> None:
    again = BuildRequest.model_validate(reversed_everywhere(request.model_dump()))
    assert again.key == request.key


@given(request=REQUESTS, other=REQUESTS)
@anything
def test_keys_are_equal_only_for_equal_inputs(request: BuildRequest, other: BuildRequest) -> None:
    """Field by field of two requests: each that differs changes the key."""
    for field in BuildRequest.model_fields:
        changed = request.model_copy(update={field: getattr(other, field)})
        same = json.dumps(changed.document(), sort_keys=True) == json.dumps(
            request.document(), sort_keys=True
        )
        assert (changed.key == request.key) == same, field


@given(ref=st.builds(ArtifactRef, digest=DIGESTS, path=st.text(), size=st.integers(0)), path=st.text())
@anything
def test_the_path_of_an_input_is_not_part_of_a_key(ref: ArtifactRef, path: str) -> None:
    request = BuildRequest(stage="export", version=1, fields={}, inputs={"data": ref})
    moved = request.model_copy(update={"inputs": {"data": ref.model_copy(update={"path": path})}})
    assert moved.key == request.key


@given(
    precisions=st.lists(st.sampled_from(["fp32", "fp16", "bf16", "int8"]), unique=True),
    kind=st.sampled_from(["cpu", "gpu"]),
    backends=st.lists(st.sampled_from(["python", "onnxruntime", "pytorch"]), unique=True),
    rules=st.lists(
        st.builds(
            ProfileRule,
            format=st.sampled_from(["ts-trace", "onnx", "trt"]),
            precision=st.sampled_from([None, "fp32", "fp16"]),
            reason=st.just("it can't"),
        ),
        max_size=2,
    ),
    bounds=st.fixed_dictionaries({}, optional={
        "max_batch_size": st.integers(1, 64),
        "max_concurrency": st.integers(1, 64),
        "request_count": st.integers(1, 64),
        "window_s": st.floats(0.1, 10.0),
    }),
)  # fmt: skip
@anything
def test_every_cell_of_a_matrix_runs_or_has_a_reason(
    spec: ModelSpec,
    profile: GpuProfile,
    precisions: list[str],
    kind: str,
    backends: list[str],
    rules: list[ProfileRule],
    bounds: dict[str, int],
) -> None:
    card = profile.model_copy(
        update={"precisions": tuple(precisions), "device_kind": kind, "unsupported": tuple(rules)}
    )
    found = expand(
        spec,
        "tiny",
        card,
        generator="client",
        triton_release="24.10",
        releases=load_releases(),
        selection=Selection.model_validate(bounds),
        backends=backends,
    )
    names = [cell.name for cell in found.cells] + [entry.cell.name for entry in found.excluded]
    formats, instances = len(spec.formats), len(spec.variants["tiny"].serving.instances)
    assert len(names) == len(set(names)) == formats * 2 * instances  # the spec knows fp32 and fp16
    assert all(entry.reason for entry in found.excluded)
    for cell in found.cells:
        assert max(cell.offline.batch_sizes) <= cell.static.max_batch_size
        assert cell.product.precision in precisions


ROWS: Any = st.fixed_dictionaries(
    {"kind": st.sampled_from(["cell", "measurement", "joke"]) | DOCUMENTS},
    optional=dict.fromkeys([*list(CELLS)[:12], *list(MEASUREMENTS)[-12:], "no such column"], DOCUMENTS),
)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("campaign")


@given(lines=st.lists(ROWS.map(json.dumps) | DOCUMENTS.map(json.dumps) | st.text(max_size=20), max_size=4))
@anything
def test_a_campaign_with_any_lines_in_it_is_read(lines: list[str], campaign: Path) -> None:
    """Lines that are no rows are left out; the sound rows stay."""
    sound = json.dumps({"kind": "cell", "cell": "sound", "verdict": "passed"})
    text = "\n".join([sound, *lines])
    (campaign / "rows.jsonl").write_bytes(text.encode(errors="surrogatepass"))
    cells, measurements = read(campaign)
    assert cells["cell"].to_list()[0] == "sound"
    assert cells.height + measurements.height <= text.count("\n") + 1


HEAD = {
    **{"campaign": "c", "cell": "a", "profile": "cpu", "gpu": "card", "model": "toy", "variant": "tiny"},
    **{"format": "onnx", "precision": "fp32", "accelerator": "none", "random_weights": False},
    **dict.fromkeys(OBJECTS[:3], "{}"),
}
CELL = HEAD | {"kind": "cell", "verdict": "passed", "wall_s": 1.0} | dict.fromkeys(OBJECTS, '{"a": 1}')
POINT = (
    HEAD
    | {"kind": "measurement", "scenario": "online", "batch": 1, "concurrency": 1, "instances": 1}
    | {"stable": True, "windows_throughput": [1.0], "windows_avg_ms": [1.0], "failed_checks": []}
    | dict.fromkeys(MEASURED, 1.0)
)
TEXTS = [name for name, kind in (CELLS | MEASUREMENTS).items() if kind == pl.String]


def damaged(row: dict[str, Any], schema: dict[str, pl.DataType]) -> Any:
    """Rows like this one, of which columns are gone and columns of text hold anything."""
    texts = [name for name in TEXTS if name in schema]
    lost = st.sets(st.sampled_from([name for name in row if name != "kind"]), max_size=4)
    wrong = st.dictionaries(
        st.sampled_from(texts), st.text(max_size=8) | DOCUMENTS.map(json.dumps), max_size=4
    )
    return st.builds(lambda gone, new: {k: v for k, v in row.items() if k not in gone} | new, lost, wrong)


@example(rows=[CELL | {"cell": "b", "parameters": '{"": []}'}])
@given(rows=st.lists(damaged(CELL, CELLS) | damaged(POINT, MEASUREMENTS), min_size=1, max_size=4))
@anything
def test_a_campaign_of_damaged_rows_is_reported(rows: list[dict[str, Any]], campaign: Path) -> None:
    """In every form, and in the history of the campaigns."""
    path = campaign / "damaged" / "rows.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in [CELL, POINT, *rows]))
    frames = read(path.parent)
    shown = tables(*frames, past=past(path.parent, frames))
    assert "## Cells" in document("c", *frames, parse("p99=1ms"), moves=moves(campaign))
    assert of_campaign(shown)
    assert "What to ship" in page("c", *frames, shown, (), parse("p99=1ms"))  # no chart: no library to load
    for scenario in ("offline", "online"):
        published_columns(frames[1], scenario)


@given(data=st.binary(max_size=100))
@anything
def test_a_campaign_of_any_bytes_is_read(data: bytes, campaign: Path) -> None:
    (campaign / "rows.jsonl").write_bytes(b'{"kind": "cell", "cell": "sound"}\n' + data)
    assert read(campaign)[0]["cell"].to_list()[0] == "sound"
