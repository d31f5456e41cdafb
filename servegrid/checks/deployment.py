"""Checks a deployment's answers between its measured points: every row of a batch is compared."""

from __future__ import annotations

from collections.abc import Sequence

from servegrid.domain.errors import WrongAnswerError
from servegrid.domain.values import LoadPlan, Serving, Value
from servegrid.loadgen.base import Target
from servegrid.loadgen.client.asking import asking
from servegrid.loadgen.reference import Expected
from servegrid.loadgen.search.points import point_of

EVERY_SIZE_UP_TO = 32
ROUNDS = 2
"""How often a full batch is sent by twice as many clients as there are instances."""


class Deployment(Value):
    """A loaded serving, and the plan by which it is measured."""

    serving: Serving
    plan: LoadPlan

    @property
    def name(self) -> str:
        """How a failure names it."""
        where = f"{self.plan.protocol}, shared memory {self.plan.shared_memory}"
        return f"{self.plan.scenario} ({self.serving.batching} batching, {where})"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Batch sizes to prove: those that are measured or preferred, all up to EVERY_SIZE_UP_TO, powers of
        two, and the largest. A server without batching takes one size, the plan's."""
        largest = self.serving.max_batch_size
        if not largest:
            return self.plan.batch_sizes
        every = [n for n in range(1, largest + 1) if n <= EVERY_SIZE_UP_TO or n & (n - 1) == 0]
        return tuple(sorted({*every, largest, *self.used}))

    @property
    def used(self) -> tuple[int, ...]:
        """The sizes that are measured or preferred."""
        return tuple(sorted({*self.plan.batch_sizes, *self.serving.preferred_batch_sizes}))


def prove(deployment: Deployment, sizes: Sequence[int], target: Target, timeout_s: float, when: str) -> None:
    """Ask for a batch of each size; with several instances for the largest by many clients at once, too.

    Raises:
        WrongAnswerError: a row is not the reference's.
        StepError: the server did not answer.
    """
    assert target.reference is not None
    expected = Expected(target.reference)
    instances = deployment.serving.instances
    with asking(target, timeout_s) as asker:
        for size in sizes:
            point = point_of(deployment.plan, size, concurrency=1)
            answers = asker.ask(point)
            if instances > 1 and size == max(sizes):
                answers += asker.ask(point, clients=2 * instances, rounds=ROUNDS)
            for answer in answers:
                if failures := expected.failures(0, size, answer):
                    said = "; ".join(failures)
                    raise WrongAnswerError(f"{deployment.name}: batch of {size}, {when}: {said}")
