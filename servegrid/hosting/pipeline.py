"""Batches of requests: joined, run and split; and a pipeline that runs one batch while it collects the next
and answers the last."""

import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


def run(session: Any, requests: list[Arrays]) -> Sequence[Arrays | Exception]:
    """Run requests as one batch: the outputs of each, or for each the error that the session raised."""
    try:
        if len(requests) == 1:
            return [session.run(requests[0])]
        outputs = session.run({n: np.concatenate([inputs[n] for inputs in requests]) for n in requests[0]})
    except Exception as error:
        return [error] * len(requests)
    found, start = [], 0
    for inputs in requests:
        end = start + _size(inputs)
        found.append({name: array[start:end] for name, array in outputs.items()})
        start = end
    return found


class Waiting(NamedTuple):
    """A request's inputs, and the function that takes its outputs or its error."""

    inputs: Arrays
    answer: Callable[[Arrays | Exception], None]


class Pipeline:
    """Runs a session in a thread of its own, one batch after the other.

    As soon as the session is free the next batch starts: all requests that wait and fit, without waiting for
    more. At most one batch waits; then `put` blocks, and the server's own batcher collects.
    """

    def __init__(self, open_session: Callable[[], Any], most: int) -> None:
        """Open the session; its errors are raised here. A batch has at most `most` samples."""
        self._most = most
        self._waiting: deque[Waiting] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._answering = ThreadPoolExecutor(1)
        opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, args=(open_session, opened), daemon=True)
        self._thread.start()
        opened.result()

    def put(self, request: Waiting) -> None:
        """Queue a request as soon as there is room for it."""
        with self._changed:
            self._changed.wait_for(lambda: self._room_for(request))
            self._waiting.append(request)
            self._changed.notify_all()

    def close(self) -> None:
        """Run and answer the waiting requests, then end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self._answering.shutdown()

    def _room_for(self, request: Waiting) -> bool:
        queued = sum(_size(waiting.inputs) for waiting in self._waiting)
        return not queued or queued + _size(request.inputs) <= self._most

    def _serve(self, open_session: Callable[[], Any], opened: "Future[None]") -> None:
        # Opened in this thread: CUDA's current device and ONNX Runtime's graphs belong to a thread.
        try:
            session = open_session()
        except BaseException as error:
            opened.set_exception(error)
            return
        opened.set_result(None)
        while batch := self._take():
            found = run(session, [request.inputs for request in batch])
            if self._waiting:
                self._answering.submit(_answer, batch, found)
            else:  # nothing else to run: a change of threads would only take time
                _answer(batch, found)

    def _take(self) -> list[Waiting]:
        """The next batch, of requests whose shapes agree; empty once the pipeline is closed and drained."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            batch: list[Waiting] = []
            left = self._most
            while self._waiting and (not batch or self._joins(self._waiting[0], batch[0], left)):
                batch.append(self._waiting.popleft())
                left -= _size(batch[-1].inputs)
            self._changed.notify_all()
            return batch

    @staticmethod
    def _joins(request: Waiting, first: Waiting, left: int) -> bool:
        shapes, wanted = (tuple(a.shape[1:] for a in r.inputs.values()) for r in (request, first))
        return _size(request.inputs) <= left and shapes == wanted


def _answer(batch: list[Waiting], found: Sequence[Arrays | Exception]) -> None:
    for request, answer in zip(batch, found, strict=True):
        try:
            request.answer(answer)
        except Exception:  # the client is gone: logged by the server, and the others get their answers
            traceback.print_exc()


def _size(inputs: Arrays) -> int:
    return len(next(iter(inputs.values())))
