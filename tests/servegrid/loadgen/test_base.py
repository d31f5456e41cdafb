"""When three windows agree, and how samples become requests."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest

from servegrid.domain.values import Endpoint
from servegrid.loadgen.base import MAX_WINDOWS, Point, Target, Window, stable, timeout_s
from servegrid.servers.samples import Samples

X = np.arange(5 * 6, dtype=np.int64).reshape(5, 2, 3)
MASK = np.array([True, False, True, True, False])[:, None]


@pytest.fixture
def five() -> Samples:
    return Samples({"x": X, "mask": MASK}, {"x": "INT32", "mask": "BOOL"})


def windows(throughput: list[float], latency: list[float]) -> list[Window]:
    return [Window(throughput=t, avg_ms=a) for t, a in zip(throughput, latency, strict=True)]


@pytest.mark.parametrize(
    ("throughput", "latency", "agree"),
    [
        ([100, 100, 100], [1, 1, 1], True),
        ([100, 110, 105], [1, 1, 1], True),
        ([100, 110.2, 105], [1, 1, 1], False),
        ([100, 100, 100], [1, 1.05, 1.1], True),
        ([100, 100, 100], [1, 1.05, 1.102], False),
        ([1, 100, 100, 100], [9, 1, 1, 1], True),  # only the last three count
        ([100, 100, 100, 1], [1, 1, 1, 1], False),
        ([100, 100], [1, 1], False),
        ([], [], False),
    ],
)
def test_stable_means_that_the_last_three_windows_agree_within_a_tenth(
    throughput: list[float], latency: list[float], agree: bool
) -> None:
    assert stable(windows(throughput, latency)) is agree


@pytest.mark.parametrize(
    ("load", "first_request_ms", "seconds"),
    [
        ({"concurrency": 4}, 1.0, 300.0),
        ({"concurrency": 4}, 1000.0, 2 * MAX_WINDOWS * 50 * 2),
        ({"concurrency": 4, "window_s": 60.0}, 1.0, 2 * MAX_WINDOWS * 60.0),
        ({"request_rate": 0.5}, 1.0, 300.0 + MAX_WINDOWS * 100),
        ({"request_rate": 1000.0}, 1.0, 300.0 + MAX_WINDOWS * 0.05),
    ],
)
def test_a_generator_hangs_only_after_all_its_requests_were_due(
    load: dict[str, float], first_request_ms: float, seconds: float
) -> None:
    words = dict.fromkeys(
        ("grpc_url", "http_url", "model", "shm_prefix", "server", "server_version", "server_log", "backend"),
        "",
    )
    endpoint = Endpoint.model_validate(words | {"load_s": None, "first_request_ms": first_request_ms})
    target = Target(endpoint=endpoint, samples=Path("s"), logs=Path("l"), name="n")
    point = Point.model_validate(
        {"batch": 2, "request_count": 50, "shared_memory": "none", "warm_up": True} | load
    )
    assert timeout_s(point, target) == pytest.approx(seconds)


def test_samples_have_the_dtype_that_the_server_wants(five: Samples) -> None:
    assert five.arrays["x"].dtype == np.int32
    np.testing.assert_array_equal(five.arrays["x"], X)


@pytest.mark.parametrize(
    ("start", "size", "rows"),
    [
        (0, 2, [0, 1]),
        (3, 4, [3, 4, 0, 1]),
        (4, 1, [4]),
        (7, 2, [2, 3]),
        (2, 12, [2, 3, 4, 0, 1] * 2 + [2, 3]),
    ],
)
def test_batch_goes_round_at_the_end(five: Samples, start: int, size: int, rows: list[int]) -> None:
    batch = five.batch(start, size)
    assert len(batch) == size
    np.testing.assert_array_equal(batch.arrays["x"], X[rows])
    np.testing.assert_array_equal(batch.arrays["mask"], MASK[rows])


@pytest.mark.parametrize(("wanted", "written"), [(3, 3), (64, 5)])
def test_perf_analyzer_is_given_the_samples_byte_for_byte(
    five: Samples, tmp_path: Path, wanted: int, written: int
) -> None:
    five.write_perf_analyzer(tmp_path / "inputs.json", wanted)
    rows = json.loads((tmp_path / "inputs.json").read_text())["data"]
    assert len(rows) == written
    for i, row in enumerate(rows):
        assert {name: entry["shape"] for name, entry in row.items()} == {"x": [2, 3], "mask": [1]}
        sent = {name: base64.b64decode(entry["content"]["b64"]) for name, entry in row.items()}
        assert sent == {"x": X[i].astype("<i4").tobytes(), "mask": MASK[i].tobytes()}
