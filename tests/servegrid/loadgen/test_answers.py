"""The random sample of answers that the client keeps."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from servegrid.loadgen.client.answers import Answer, Reservoir


def kept(size: int, requests: int, seed: int) -> list[int]:
    """The numbers of the answers that are kept."""
    reservoir = Reservoir(size, seed)
    for _ in range(requests):
        if reservoir.wants():
            reservoir.keep(Answer(reservoir.count, 0.0, 0, None, ()))
    assert reservoir.count == requests
    return [answer.number for answer in reservoir.kept]


@pytest.mark.parametrize(("size", "requests"), [(1, 1), (8, 5), (8, 8), (8, 9), (100, 10_000)])
def test_as_many_are_kept_as_there_is_room_for_each_once(size: int, requests: int) -> None:
    found = kept(size, requests, seed=1)
    assert len(found) == len(set(found)) == min(size, requests)
    assert set(found) <= set(range(1, requests + 1))


def test_every_request_is_as_likely_as_any_other() -> None:
    counts: Counter[int] = Counter()
    for seed in range(2000):
        counts.update(kept(10, 100, seed))
    tenths = np.array([sum(counts[n] for n in range(start, start + 10)) for start in range(1, 101, 10)])
    assert tenths.sum() == 20_000
    assert np.abs(tenths / 2000 - 1).max() < 0.1  # one standard deviation is 2 %


def test_without_room_none_is_wanted() -> None:
    assert kept(0, 50, seed=0) == []
