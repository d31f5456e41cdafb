"""How fast a model could be on a machine at most: the roofline.

S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 52 (4), 2009. A batch needs at least the time of its arithmetic at the machine's rate,
and of its traffic at the bandwidth of its memory; the longer of the two is the limit.
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
"""The precisions that a runtime may compute in: where a machine is slow in one, the operands are widened."""


class Count(Value):
    """What one sample costs. `flops` as the framework's own counter has them, a multiply-add as two, of the
    shape that is sent: padding and what a mask hides is work, too. PyTorch counts matrix products,
    convolutions and attention; TensorFlow pointwise operators as well; of an ONNX file products and
    convolutions are counted. `weights`: floating-point parameters; `sample_bytes`: inputs and outputs.
    None: not counted."""

    flops: float | None
    weights: int | None
    sample_bytes: int


class Ceilings(Value):
    """What a machine reached: a square matrix product by precision in FLOP/s, a copy in bytes/s (read and
    written). None: the library cannot do it there."""

    flops_per_s: dict[Precision, float | None]
    bytes_per_s: float


class Limit(Value):
    """The most inferences/s, and what sets it."""

    throughput: float
    kind: Literal["compute", "memory"]


class Roofline(Value):
    """A model on a machine."""

    count: Count
    ceilings: Ceilings

    def limit(self, precision: Precision, batch: int) -> Limit | None:
        """For batches of this size; None where something was not counted or measured.

        The traffic is what cannot be avoided: weights once a batch, inputs and outputs; what lies between
        stays in caches.
        """
        known = [rate for p in WIDER[precision] if (rate := self.ceilings.flops_per_s.get(p))]
        if self.count.flops is None or self.count.weights is None or not known:
            return None
        compute_s = batch * self.count.flops / max(known)
        moved = self.count.weights * WIDTH[precision] + batch * self.count.sample_bytes
        memory_s = moved / self.ceilings.bytes_per_s
        kind: Literal["compute", "memory"] = "compute" if compute_s >= memory_s else "memory"
        return Limit(throughput=batch / max(compute_s, memory_s), kind=kind)
