"""The largest batch that a loaded model has memory for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from tritonclient.utils import InferenceServerException

from servegrid.domain.errors import InfeasibleError
from servegrid.host.memory import has_ended


def check_fit(infer: Callable[[int], object], sizes: Sequence[int]) -> None:
    """Run the largest of the batch sizes; out of memory, find the largest that runs by bisection.

    `infer` sends one request of a size, and raises the server's error.

    Raises:
        InfeasibleError: out of memory; has the largest of the sizes that ran.
        InferenceServerException: a request failed for another reason.
    """
    ordered = sorted(set(sizes))
    reason = _out_of_memory(infer, ordered[-1])
    if reason is None:
        return
    fitting = bisect_left(ordered[:-1], True, key=lambda size: _out_of_memory(infer, size) is not None)
    largest = ordered[fitting - 1] if fitting else 0
    found = f"the largest that fits is {largest}: --max-batch-size {largest}"
    fits = found if largest else "no tested size fits"
    raise InfeasibleError(f"out of memory at batch {ordered[-1]}; {fits} ({reason})", largest_batch=largest)


def _out_of_memory(infer: Callable[[int], object], size: int) -> str | None:
    """The server's error, in one line, if a batch of this size runs out of memory."""
    try:
        infer(size)
    except InferenceServerException as error:
        if not has_ended(str(error)):
            raise
        return " ".join(str(error).split())[:300]
    return None
