"""When the requests of a request rate are due."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from servegrid.domain.values import Distribution

CHUNK = 1024


def due_times(rate: float, distribution: Distribution, share: int = 0, shares: int = 1) -> Iterator[float]:
    """Seconds after the start at which one of `shares` processes sends, without end.

    Together they send `rate` requests/s: evenly spaced, taking turns; or as a Poisson process, which the sum
    of independent ones is. Seeded: the same point is loaded by the same schedule each time.
    """
    if distribution == "constant":
        number = share
        while True:
            yield number / rate
            number += shares
    random, time = np.random.default_rng((20260101, share)), 0.0
    while True:
        for gap in random.exponential(shares / rate, CHUNK):
            time += float(gap)
            yield time
