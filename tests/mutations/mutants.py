"""The mutants: each breaks a tiny model, its data or its metric in one way. And unusual right models.

The model computes `total = a @ weights + 2 b`, `difference = a - b` and `label`, the place of the largest
total, of float32 rows of 8. Code of a mutant stands in its session: `n` is the number of rows, `self.calls`
counts calls, `self.static` says which serving is loaded, `self.instance` which instance this is.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

SESSION = """
import time
from pathlib import Path
import numpy as np

class Session:
    static, instance = False, "_0"

    def __init__(self, artifact, kind):
        self.weights = np.load(Path(artifact) / "weights.npy")
        self.calls, self.kept, self.began, self.last = 0, {{}}, time.monotonic(), 0.0

    def run(self, inputs):
        self.calls += 1
        a, b = inputs["a"], inputs["b"]
        n = len(a)
        {before}
        total, difference = a @ self.weights + 2 * b, a - b
        {common}
        label = total.argmax(axis=1)[:, None].astype(np.int64) + {ids}
        {after}
        return {{"total": total, "difference": difference, "label": label}}
"""
METRIC = """
import numpy as np
class MetricsCalculator:
    def calc(self, ids, y_pred, x, y_real):
        {metric}
        return {{"accuracy": right}}
"""

RIGHT = "right = (y_pred['label'] == y_real['label']).mean()"

Kind = Literal[
    "rows", "sizes", "instances", "time", "order", "precision", "layout", "stale", "swapped", "data",
    "metrics", "artifact", "unusual",
]  # fmt: skip


class Mutant(NamedTuple):
    """What is changed. `before` and `after` are code of the served session only, `common` also of the
    reference; `weights`, `data` change the arrays `w` or `x` (inputs) and `y` (labels); `runtime` is put
    behind the hosted runtime's own code. `ids` is what the labels begin with."""

    name: str
    kind: Kind
    after: str = "pass"
    before: str = "pass"
    common: str = "pass"
    weights: str = "pass"
    data: str = "pass"
    metric: str = RIGHT
    runtime: str = ""
    instances: int = 1
    ids: int = 0
    protocol: Literal["grpc", "http"] = "grpc"
    shared_memory: Literal["none", "system"] = "system"

    @property
    def session(self) -> str:
        return SESSION.format(before=self.before, common=self.common, after=self.after, ids=self.ids)

    @property
    def reference(self) -> str:
        return SESSION.format(before="pass", common=self.common, after="pass", ids=self.ids)


REVERSED = """
_run = TritonPythonModel.execute
def _execute(self, requests):
    found = _run(self, requests)
    sizes = [len(np.from_dlpack(_Given(r.inputs()[0]))) for r in requests]
    return found[::-1] if len(set(sizes)) == 1 else found
TritonPythonModel.execute = _execute
"""
WRONG = "total[:] = 7; difference[:] = 7"
FAR = 2**53

MUTANTS = [
    Mutant("last row of a batch", "rows", "total[-1] += n > 1"),
    Mutant("first row of a larger batch", "rows", "total[0] += n > 4"),
    Mutant("row 13", "rows", "total[13:14] += 1"),
    Mutant("the last row of a full batch", "rows", "total[31:32] += 1"),
    Mutant("every seventh row", "rows", "difference[6::7] = 0"),
    Mutant("label of the third row", "rows", "label[2:3] = (label[2:3] + 1) % 8"),
    Mutant("one value of row 20", "rows", "difference[20:21, 5] += 0.01"),
    Mutant("a preferred size", "sizes", "total += n == 24"),
    Mutant("batches of three", "sizes", "total += n == 3"),
    Mutant("batches over 16", "sizes", "difference += n > 16"),
    Mutant("the largest batch", "sizes", "total += n == 32"),
    Mutant("odd batches", "sizes", "total += n > 1 and n % 2"),
    Mutant("sizes between those preferred", "sizes", "total += 20 <= n <= 22"),
    Mutant("one request alone", "sizes", "difference += n == 1"),
    Mutant("7 everywhere when static", "instances", f"if self.static: {WRONG}"),
    Mutant("static, at 24 only", "instances", "total += self.static and n == 24"),
    Mutant("static, one row at a time", "instances", "total += self.static and n == 1"),
    Mutant("dynamic only", "instances", "total += not self.static"),
    Mutant("the second instance", "instances", "total += self.instance.endswith('_1')", instances=2),
    Mutant(
        "the second instance, at its largest batch",
        "instances",
        "total += self.instance.endswith('_1') and n == 32",
        instances=2,
    ),
    Mutant(
        "the second instance when static",
        "instances",
        "total += self.static and self.instance.endswith('_1')",
        instances=2,
    ),
    Mutant("after 1000 calls", "time", "total += self.calls > 1000"),
    Mutant("after two seconds", "time", "total += time.monotonic() - self.began > 2"),
    Mutant("every hundredth call", "time", "total += self.calls % 100 == 0"),
    Mutant("calls 600 to 900", "time", "total += 600 <= self.calls < 900"),
    Mutant("static, after 20 calls", "time", "total += self.static and self.calls > 60"),
    Mutant(
        "in quick succession",
        "time",
        "now = time.monotonic(); total += n > 2 and now - self.last < 0.002; self.last = now",
    ),
    Mutant("rows turned round", "order", "total = total[::-1].copy()"),
    Mutant("rows one on", "order", "total = np.roll(total, 1, axis=0)"),
    Mutant("the first two rows", "order", "total[:2] = total[:2][::-1].copy()"),
    Mutant("rows by value", "order", "total = total[total[:, 0].argsort()]"),
    Mutant("columns turned round", "order", "difference = difference[:, ::-1].copy()"),
    Mutant("requests of a batch", "order", runtime=REVERSED),
    Mutant("halves of a batch of 24", "order", "total = np.roll(total, 12 * (n == 24), axis=0)"),
    Mutant("half precision", "precision", "total = total.astype(np.float16).astype(np.float32)"),
    Mutant(
        "bfloat16",
        "precision",
        "total = (total.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)",
    ),
    Mutant("two decimals", "precision", "difference = difference.round(2)"),
    Mutant("eight bits", "precision", "total = (total * 16).astype(np.int8).astype(np.float32) / 16"),
    Mutant("clipped", "precision", "total = np.minimum(total, 3.0)"),
    Mutant("not a number where large", "precision", "total[total > 6] = np.nan"),
    Mutant("ids through float64", "precision", "label = label.astype(np.float64).astype(np.int64)", ids=FAR),
    Mutant("transposed memory", "layout", "total = np.ascontiguousarray(total.T).reshape(total.shape)"),
    Mutant("byte order", "layout", "total = total.view(np.uint32).byteswap().view(np.float32)"),
    Mutant(
        "interleaved columns", "layout", "total = total.reshape(n, 4, 2).transpose(0, 2, 1).reshape(n, 8)"
    ),
    Mutant("a column less", "layout", "total = total[:, :7].copy()"),
    Mutant("the last column zero", "layout", "difference[:, -1] = 0"),
    Mutant("a row less", "layout", "total = total[:-1] if n > 1 else total"),
    Mutant("the answer before", "stale", "self.kept, total = {n: total}, self.kept.get(n, total)"),
    Mutant(
        "an input of the request before",
        "stale",
        before="self.kept, b = {n: b.copy()}, self.kept.get(n, b)",
    ),
    Mutant(
        "the first row of the call before",
        "stale",
        "first = total[0].copy(); total[0] = self.kept.get(0, first); self.kept[0] = first",
    ),
    Mutant("the first answer of a size again", "stale", "total = self.kept.setdefault(n, total)"),
    Mutant("weights that decay", "stale", before="self.weights = self.weights * (1 - 1e-4)"),
    Mutant("two outputs", "swapped", "total, difference = difference, total"),
    Mutant("two inputs", "swapped", before="a, b = b, a"),
    Mutant("two outputs of one row", "swapped", "if n == 1: total, difference = difference, total"),
    Mutant("two inputs when static", "swapped", before="if self.static: a, b = b, a"),
    Mutant("the label of the other output", "swapped", "label = difference.argmax(axis=1)[:, None]"),
    Mutant("labels one on", "data", data="y['label'] = np.roll(y['label'], 1, axis=0)"),
    Mutant("labels of the next class", "data", data="y['label'] = (y['label'] + 1) % 8"),
    Mutant("inputs of the wrong sign", "data", data="x['a'] *= -1; x['b'] *= -1"),
    Mutant("inputs of zeros", "data", data="x['a'][:] = 0; x['b'][:] = 0"),
    Mutant("labels turned round", "data", data="y['label'] = y['label'][::-1].copy()"),
    Mutant("always right", "metrics", metric="right = 1.0"),
    Mutant(
        "labels against themselves", "metrics", metric="right = (y_real['label'] == y_real['label']).mean()"
    ),
    Mutant("not a number", "metrics", metric="right = float('nan')"),
    Mutant("counts what is wrong", "metrics", metric=f"{RIGHT}; right = 1 - right"),
    Mutant("another name", "metrics", metric="return {'f1': 1.0}"),
    Mutant("a weight's sign", "artifact", weights="w[3, 3] *= -1"),
    Mutant("rows of the weights", "artifact", weights="w[:] = np.roll(w, 1, axis=0)"),
    Mutant("one part in a thousand", "artifact", weights="w *= 1.001"),
    Mutant("weights transposed", "artifact", weights="w[:] = w.T.copy()"),
    Mutant("a column of the weights lost", "artifact", weights="w[:, 2] = 0"),
]

UNUSUAL = [
    Mutant("nothing unusual", "unusual"),
    Mutant("labels sorted by class", "unusual", data="take(y['label'][:, 0].argsort(kind='stable'))"),
    Mutant("samples in pairs", "unusual", data="take(np.repeat(np.arange(48), 2))"),
    Mutant("the samples twice", "unusual", data="take(np.tile(np.arange(48), 2))"),
    Mutant("one label", "unusual", data="take(np.resize(np.flatnonzero(y['label'][:, 0] == 2), 96))"),
    Mutant(
        "most samples of one label",
        "unusual",
        data="take(np.concatenate([np.resize(np.flatnonzero(y['label'][:, 0] == 2), 60), np.arange(36)]))",
    ),
    Mutant(
        "no labels, a metric of the inputs",
        "unusual",
        data="y.clear()",
        metric="right = (y_pred['difference'] == x['a'] - x['b']).all(axis=1).mean()",
    ),
    Mutant(
        "answers in a buffer of its own",
        "unusual",
        "total = self.kept.setdefault(n, total.copy()); total[:] = a @ self.weights + 2 * b",
    ),
    Mutant("answers that are not contiguous", "unusual", "total = np.asfortranarray(total)"),
    Mutant("answers that are read-only", "unusual", "total.flags.writeable = False"),
    Mutant("minus infinity in a column", "unusual", common="difference[:, 0] = -np.inf"),
    Mutant("not a number in a column", "unusual", common="difference[:, 3] = np.nan"),
    Mutant("an output of zeros", "unusual", common="difference[:] = 0"),
    Mutant("huge values", "unusual", common="difference = (difference * 1e30).round(-20).astype(np.float32)"),
    Mutant("ids beyond 2 to the 53", "unusual", ids=FAR + 1, data="y['label'] += 2**53 + 1"),
    Mutant("two instances", "unusual", instances=2),
    Mutant("a slow first call", "unusual", "time.sleep(1.0 * (self.calls == 1))"),
    Mutant("slow batches", "unusual", "time.sleep(0.001 * n)"),
    Mutant("over HTTP", "unusual", protocol="http"),
    Mutant("without shared memory", "unusual", shared_memory="none"),
]
