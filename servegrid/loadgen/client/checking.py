"""Whether the answers that the client kept are those of the reference."""

from __future__ import annotations

from collections.abc import Iterable

from servegrid.host.stage_timer import date_of
from servegrid.loadgen.base import Point, Target
from servegrid.loadgen.client.answers import Answer, arrays
from servegrid.loadgen.client.codec import CODECS
from servegrid.loadgen.client.messages import Request
from servegrid.loadgen.reference import Expected
from servegrid.servers.samples import Samples

KEPT, KEPT_BYTES = 512, 32 * 1024 * 1024
"""Answers, and their bytes, that the processes of one point keep together at most (but each at least one)."""
NAMED = 3
"""Wrong answers that are named."""


def kept_answers(point: Point, target: Target, answer_bytes: int) -> int:
    """How many answers of a point are kept; none where there is no reference, or where they lie on a card."""
    if target.reference is None or point.input_data != "samples" or point.shared_memory == "cuda":
        return 0
    return min(KEPT, max(1, KEPT_BYTES // max(answer_bytes, 1)))


def wrong_answers(
    point: Point,
    target: Target,
    samples: Samples,
    requests: list[Request],
    answers: Iterable[tuple[int, Answer]],
) -> tuple[str, ...]:
    """The first of the wrong answers: process and number of the request, when it was answered, and the
    bounds that it does not hold. `requests` are those that are sent in turn."""
    assert target.reference is not None
    expected, codec = Expected(target.reference), CODECS[point.protocol]
    found: list[str] = []
    for process, answer in sorted(answers, key=lambda entry: entry[1].end):
        values = samples.unflattened(arrays(codec, requests[answer.turn], answer.data, answer.placed))
        if failures := expected.failures(answer.turn * point.batch, point.batch, values):
            request = f"request {answer.number} of client process {process}, {date_of(answer.end)}"
            found.append(f"{request}: {'; '.join(failures)}")
            if len(found) == NAMED:
                break
    return tuple(found)
