"""The largest batch that a loaded model has memory for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from tritonclient.utils import InferenceServerException

from servegrid.domain.errors import InfeasibleError
from servegrid.host.memory import has_ended


def check_fit(ask: Callable[[int], object], sizes: Sequence[int]) -> None:
    """Have the model answer the largest of the batch sizes; where memory ends, bisect the others.

    `ask` sends one request of a size, and raises what the server says.

    Raises:
        InfeasibleError: memory ended; holds the largest of the sizes that was answered.
        InferenceServerException: a request failed for another reason.
    """
    ordered = sorted(set(sizes))
    said = _why_not(ask, ordered[-1])
    if said is None:
        return
    fitting = bisect_left(ordered[:-1], True, key=lambda size: _why_not(ask, size) is not None)
    largest = ordered[fitting - 1] if fitting else 0
    told = f"the largest that fits is {largest}: --max-batch-size {largest}" if largest else "none fits"
    raise InfeasibleError(f"memory ended at batch {ordered[-1]}; {told} ({said})", largest_batch=largest)


def _why_not(ask: Callable[[int], object], size: int) -> str | None:
    """What the server says, in one line, where memory does not hold a batch of this size."""
    try:
        ask(size)
    except InferenceServerException as error:
        if not has_ended(str(error)):
            raise
        return " ".join(str(error).split())[:300]
    return None
