"""The pipeline of a dynamically batched model: what shares a batch, who gets which answer, how it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerException

from servegrid.domain.values import Serving
from servegrid.hosting.pipeline import Pipeline, Waiting

Array = np.ndarray[Any, Any]


class Gated:
    """A session that doubles `x`, waits for a permit before each run, and keeps each batch's size; it
    refuses negative numbers."""

    def __init__(self) -> None:
        self.permits = threading.Semaphore(0)
        self.sizes: list[int] = []
        self.thread = threading.get_ident()

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        assert threading.get_ident() == self.thread, "opened by one thread, run by another"
        self.permits.acquire()
        self.sizes.append(len(inputs["x"]))
        if (inputs["x"] < 0).any():
            raise ValueError("negative")
        return {"y": 2 * inputs["x"]}


class Asking:
    """A pipeline of batches of up to 8, and the batches that it got."""

    def __init__(self) -> None:
        self.session: Gated

        def open_session() -> Gated:
            self.session = Gated()
            return self.session

        self.pipeline = Pipeline(open_session, 8)
        self.requests: list[tuple[Array, Future[Any]]] = []

    def put(self, x: Array) -> None:
        answer: Future[Any] = Future()
        self.requests.append((x, answer))
        self.pipeline.put(Waiting({"x": x}, answer.set_result))

    def occupied(self) -> None:
        """One request of 1 is running, and held; nothing waits."""
        self.put(np.full((1, 2), 100))
        until(lambda: not self.pipeline._waiting)

    def finish(self) -> None:
        self.session.permits.release(100)
        self.pipeline.close()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5.0
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_requests_that_arrive_during_a_batch_share_the_next(asking: Asking) -> None:
    asking.occupied()
    for size in (1, 2, 3):
        asking.put(np.full((size, 2), size))
    asking.finish()
    assert asking.session.sizes == [1, 6]
    for x, answer in asking.requests:
        np.testing.assert_array_equal(answer.result(0)["y"], 2 * x)


def test_other_shapes_and_large_requests_run_later_in_order(asking: Asking) -> None:
    asking.occupied()
    for shape in ((2, 2), (2, 5), (3, 5), (3, 2)):  # 10 samples: the last has to wait for room
        threading.Thread(target=asking.put, args=(np.ones(shape),)).start()
        until(lambda wanted=shape: asking.requests[-1][0].shape == wanted)  # type: ignore[misc]
    until(lambda: len(asking.pipeline._waiting) == 3)
    asking.session.permits.release(100)
    until(lambda: all(answer.done() for _, answer in asking.requests))
    asking.finish()
    assert sorted(asking.session.sizes[1:]) == [2, 3, 5]
    assert [answer.result(0)["y"].shape for _, answer in asking.requests] == [
        x.shape for x, _ in asking.requests
    ]


def test_an_error_goes_to_each_request_of_its_batch_and_to_no_other(asking: Asking) -> None:
    asking.occupied()
    asking.put(np.ones((1, 2)))
    asking.put(-np.ones((1, 2)))
    asking.session.permits.release(2)
    until(lambda: all(answer.done() for _, answer in asking.requests))
    asking.put(np.ones((1, 2)))
    asking.finish()
    found = [answer.result(0) for _, answer in asking.requests]
    assert [str(answer) == "negative" for answer in found] == [False, True, True, False]


def test_an_answer_that_nobody_takes_keeps_no_other_from_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    def gone(_: Any) -> None:
        raise RuntimeError("the client is gone")

    taken: Future[Any] = Future()
    session = Gated()
    session.permits.release()

    def open_session() -> Gated:
        session.thread = threading.get_ident()
        return session

    pipeline = Pipeline(open_session, 8)
    for answer in (gone, taken.set_result):
        pipeline.put(Waiting({"x": np.ones((4, 1))}, answer))
        session.permits.release()
    np.testing.assert_array_equal(taken.result(timeout=10)["y"], 2 * np.ones((4, 1)))
    pipeline.close()
    assert "the client is gone" in capfd.readouterr().err


def test_an_error_on_opening_reaches_the_caller() -> None:
    def fail() -> None:
        raise RuntimeError("no such device")

    with pytest.raises(RuntimeError, match="no such device"):
        Pipeline(fail, 8)


def test_a_pipelined_model_is_served(server: Any, interface: Any, onnx_artifact: Any) -> None:
    table = np.arange(64, dtype=np.float32).reshape(16, 4)
    io = interface([("x", "int64", (-1, -1))], [("y", "float32", (-1, -1, 4))])
    artifact = onnx_artifact(io, [("Gather", ["table", "x"], ["y"], {"axis": 0})], {"table": table})
    dynamic = Serving(batching="dynamic", max_batch_size=8)
    server.write("pipelined", artifact, io, serving=dynamic)
    with (server.repository / "pipelined" / "config.pbtxt").open("a") as file:  # as on a GPU
        file.write('parameters { key: "pipelined" value { string_value: "true" } }\n')
    start = len(server.log)
    server.client.load_model("pipelined")

    def ask(index: int) -> bool:
        x = np.full((index % 3 + 1, index % 2 + 1), index)
        try:
            answer = server.ask("pipelined", {"x": x})["y"]
        except InferenceServerException as error:
            return "out of data bounds" in str(error)
        return np.array_equal(answer, table[x])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, [*range(16)] * 20))
    with pytest.raises(InferenceServerException, match=r"InvalidArgument.*out of data bounds"):
        server.ask("pipelined", {"x": np.array([[99]])})
    assert ask(3)
    server.client.unload_model("pipelined")
    assert "Traceback" not in server.log[start:]
