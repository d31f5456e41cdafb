"""A hosted identity model returns its input bit for bit: data types, shapes, sizes, neighbours."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton

from servegrid.domain.values import TRITON_DTYPES, Interface

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

# ONNX Runtime's Identity and PyTorch's trace carry every data type that the project names.
DTYPES = tuple(TRITON_DTYPES)

TORCHSCRIPT = """
import json, sys
from pathlib import Path
import torch
folder, dtypes = Path(sys.argv[1]), json.loads(sys.argv[2])
class Identity(torch.nn.Module):
    def forward(self, *xs):
        return tuple(xs)
class Views(torch.nn.Module):
    def forward(self, x):
        return x.transpose(1, 2), x[:, ::2, 1:], x[:, :1, :1].expand(-1, 3, 5)
for name, module, inputs in (
    ("identity", Identity(), tuple(torch.zeros(2, 3).to(getattr(torch, d)) for d in dtypes)),
    ("views", Views(), (torch.zeros(2, 4, 6),)),
):
    (folder / name).mkdir()
    torch.jit.trace(module, inputs).save(str(folder / name / "model.pt"))
"""


@pytest.fixture(scope="module")
def torchscript(run_python: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `identity` and `views` with a model.pt each."""
    folder = tmp_path_factory.mktemp("torchscript")
    run_python(TORCHSCRIPT, folder, json.dumps(DTYPES))
    return folder


@pytest.fixture(scope="module", params=["onnx", "ts-trace"])
def everything(
    request: pytest.FixtureRequest, server: Any, interface: Any, onnx_artifact: Any, torchscript: Path
) -> Callable[[Arrays], Arrays]:
    """Sends a tensor of each data type, all [b, n], through one hosted identity; keys are data types."""
    io: Interface = interface(
        [(f"x_{d}", d, (-1, -1)) for d in DTYPES], [(f"y_{d}", d, (-1, -1)) for d in DTYPES]
    )
    if request.param == "onnx":
        artifact = onnx_artifact(io, [("Identity", [f"x_{d}"], [f"y_{d}"], {}) for d in DTYPES])
    else:
        artifact = torchscript / "identity"
        (artifact / "interface.json").write_text(io.model_dump_json())
    # A queue delay, so that requests sent at once share a batch.
    model = server.load(
        f"everything-{request.param}", artifact, io, format_=request.param, max_queue_delay_us=50_000
    )

    def ask(arrays: Arrays, client: Any = None) -> Arrays:
        answer = server.ask(model, {f"x_{d}": a for d, a in arrays.items()}, client)
        return {name.removeprefix("y_"): array for name, array in answer.items()}

    ask.model = model  # type: ignore[attr-defined]
    return ask


def edges(dtype: str) -> Array:
    """Six values where a wrong copy or conversion shows."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.array([True, False, False, True, True, False])
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return np.array([limits.min, limits.max, 0, 1, limits.max - 1, limits.min + 1], dtype=kind)
    finite = np.finfo(kind)
    return np.array([np.nan, np.inf, -np.inf, finite.smallest_subnormal, -finite.max, -0.0], dtype=kind)


def bits(array: Array) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def assert_same(answer: Arrays, sent: Arrays) -> None:
    assert set(answer) == set(sent)
    for dtype, array in sent.items():
        assert answer[dtype].dtype == array.dtype
        assert answer[dtype].shape == array.shape
        assert bits(answer[dtype]) == bits(array), dtype


def rows(size: int, width: int, seed: int) -> Arrays:
    """Random bytes as values of every data type."""
    random = np.random.default_rng(seed)
    found = {}
    for dtype in DTYPES:
        if dtype == "bool":
            found[dtype] = random.integers(0, 2, (size, width)).astype(bool)
        else:
            raw = random.bytes(size * width * np.dtype(dtype).itemsize)
            found[dtype] = np.frombuffer(raw, dtype=dtype).reshape(size, width)
    return found


def test_every_dtype_comes_back_exactly_at_its_extremes(everything: Any) -> None:
    sent = {dtype: edges(dtype).reshape(2, 3) for dtype in DTYPES}
    assert_same(everything(sent), sent)


@pytest.mark.parametrize("size", [1, 8])
def test_one_sample_and_a_full_batch_come_back(everything: Any, size: int) -> None:
    sent = rows(size, 5, seed=size)
    assert_same(everything(sent), sent)


@pytest.mark.parametrize("size", [1, 3])
def test_an_empty_inner_axis_comes_back_empty(everything: Any, size: int) -> None:
    sent = rows(size, 0, seed=0)
    assert_same(everything(sent), sent)


def test_requests_that_share_a_batch_get_their_own_rows(everything: Any, server: Any) -> None:
    requests = [rows(size, width, seed=10 * size + width) for size in (1, 2, 3) for width in (0, 4, 7)] * 3
    before = server.statistics(everything.model)
    barrier = threading.Barrier(len(requests))

    def send(sent: Arrays) -> Arrays:
        with triton.InferenceServerClient(server.running.grpc_url) as client:
            client.is_server_live()
            barrier.wait()
            answer: Arrays = everything(sent, client)
            return answer

    with ThreadPoolExecutor(len(requests)) as pool:
        answers = list(pool.map(send, requests))
    after = server.statistics(everything.model)
    assert after.execution_count - before.execution_count < len(requests), "nothing was batched"
    for answer, sent in zip(answers, requests, strict=True):
        assert_same(answer, sent)


def test_torchscript_outputs_that_are_views_come_back_in_order(
    server: Any, interface: Any, torchscript: Path
) -> None:
    io = interface(
        [("x", "float32", (-1, -1, -1))],
        [(name, "float32", (-1, -1, -1)) for name in ("turned", "sliced", "spread")],
    )
    (torchscript / "views" / "interface.json").write_text(io.model_dump_json())
    model = server.load("views", torchscript / "views", io, format_="ts-trace")
    x = np.random.default_rng(0).random((3, 4, 6), dtype=np.float32)
    answer = server.ask(model, {"x": x})
    np.testing.assert_array_equal(answer["turned"], x.transpose(0, 2, 1))
    np.testing.assert_array_equal(answer["sliced"], x[:, ::2, 1:])
    np.testing.assert_array_equal(answer["spread"], np.broadcast_to(x[:, :1, :1], (3, 3, 5)))
    server.client.unload_model(model)


def test_onnx_transpose_comes_back_in_order(server: Any, interface: Any, onnx_artifact: Any) -> None:
    io = interface([("x", "float16", (-1, -1, -1))], [("y", "float16", (-1, -1, -1))])
    artifact = onnx_artifact(io, [("Transpose", ["x"], ["y"], {"perm": [0, 2, 1]})])
    model = server.load("transpose", artifact, io)
    x = np.random.default_rng(0).random((3, 4, 6)).astype(np.float16)
    np.testing.assert_array_equal(server.ask(model, {"x": x})["y"], x.transpose(0, 2, 1))
    server.client.unload_model(model)


def test_tensors_of_80_megabytes_come_back(server: Any, identity: str) -> None:
    x = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, (2, 5_000_000))
    answer = server.ask(identity, {"x": x})["y"]
    assert answer.shape == x.shape
    assert np.array_equal(answer, x)


def test_a_batch_of_no_rows_is_refused(server: Any, identity: str) -> None:
    # (With an inner axis of 0 as well, the request has no bytes to count and Triton 2.51 never answers it.)
    with pytest.raises(triton.InferenceServerException, match="byte size mismatch"):
        server.ask(identity, {"x": np.zeros((0, 3), np.int64)})


def test_a_batch_over_the_maximum_is_refused(server: Any, identity: str) -> None:
    with pytest.raises(triton.InferenceServerException, match="batch-size must be <= 8"):
        server.ask(identity, {"x": np.zeros((9, 3), np.int64)})
