"""The upper limit of a model's throughput on a machine: the roofline.

S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 52 (4), 2009. A batch needs at least the time of its arithmetic at the machine's FLOP/s,
and the time of its memory traffic at the machine's bandwidth; the longer of the two is the limit.
"""

from __future__ import annotations

from typing import Literal

from servegrid.domain.values import Precision, Value

WIDTH = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}
"""Bytes of a weight."""
WIDER: dict[Precision, tuple[Precision, ...]] = {
    "fp32": ("fp32",),
    "fp16": ("fp16", "fp32"),
    "bf16": ("bf16", "fp32"),
    "int8": ("int8", "fp16", "bf16", "fp32"),
}
"""Precision -> those in which a runtime may compute: it widens operands if the machine is faster so."""


class Count(Value):
    """The cost of one sample. `flops`: from the framework's own counter, a multiply-add as two, for the
    shape that is sent, with its padding and masked positions. PyTorch counts matrix products, convolutions
    and attention; TensorFlow also pointwise operators; for an ONNX file products and convolutions are
    counted. `weights`: floating-point parameters; `sample_bytes`: inputs and outputs. None: not counted."""

    flops: float | None
    weights: int | None
    sample_bytes: int


class Ceilings(Value):
    """Measured rates of a machine: a square matrix product in FLOP/s by precision, a copy in bytes/s (read
    plus written). None: the library cannot run it there."""

    flops_per_s: dict[Precision, float | None]
    bytes_per_s: float


class Limit(Value):
    """The highest possible inferences/s, and the resource that limits them."""

    throughput: float
    kind: Literal["compute", "memory"]


class Roofline(Value):
    """A model on a machine."""

    count: Count
    ceilings: Ceilings

    def limit(self, precision: Precision, batch: int) -> Limit | None:
        """The limit for batches of this size; None if a count or a rate is missing.

        Memory traffic counts weights once a batch, inputs and outputs; intermediate values are assumed to
        stay in caches.
        """
        known = [rate for p in WIDER[precision] if (rate := self.ceilings.flops_per_s.get(p))]
        if self.count.flops is None or self.count.weights is None or not known:
            return None
        compute_s = batch * self.count.flops / max(known)
        moved = self.count.weights * WIDTH[precision] + batch * self.count.sample_bytes
        memory_s = moved / self.ceilings.bytes_per_s
        kind: Literal["compute", "memory"] = "compute" if compute_s >= memory_s else "memory"
        return Limit(throughput=batch / max(compute_s, memory_s), kind=kind)
