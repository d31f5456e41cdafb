"""The shuffled baseline: each sample gets the answer of another, whose label differs."""

from __future__ import annotations

import numpy as np

from servegrid.domain.arrays import Array, Arrays


def partners(labels: Arrays) -> Array | None:
    """For each sample the index of the one whose answer it gets; None where all samples have one label.

    Samples in the order of their labels are paired with those half of all further on. Labels of a pair are
    equal only where more than half of all are. Labels that are numbers are far apart in a pair, too.
    """
    count = len(next(iter(labels.values())))
    keys = _keys(labels, count)
    if len(set(keys)) < 2:
        return None
    order = np.array(sorted(range(count), key=keys.__getitem__))
    found = np.empty(count, dtype=int)
    found[order] = np.roll(order, count // 2)
    return found


def _keys(labels: Arrays, count: int) -> list[tuple[float, bytes]]:
    """Of each sample's label the sum of its numbers, by which they are in order, and its bytes."""
    rows = [np.ascontiguousarray(array.reshape(count, -1)) for array in labels.values()]
    sums = np.zeros(count)
    with np.errstate(all="ignore"):  # of values that are not finite
        for row in rows:
            if row.dtype.kind in "biuf":
                sums += np.nan_to_num(row.astype(np.float64)).sum(axis=1)
    return [(float(sums[i]), b"".join(row[i].tobytes() for row in rows)) for i in range(count)]
