"""Layer 3 of correctness: an answer does not depend on batch size, neighbours in the batch, or instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from servegrid.checks.predictions import infer, joined, neighbours
from servegrid.domain.arrays import Arrays, TensorMatch, match
from servegrid.domain.tolerances import Tolerances
from servegrid.domain.values import Endpoint, Serving, Tensor, Value
from servegrid.servers.connection import connect
from servegrid.servers.samples import Samples, server_config

EVERY_SIZE_UP_TO = 16
ROWS = 256
"""Of a larger batch so many are compared: each costs a request alone, and one model has batches of 131072."""
ROUNDS = 4

Ask = Callable[[Samples], Arrays]
"""One request to the loaded model."""


class Invariance(Value):
    """What each kind of change did to some samples' answers; empty where there was nothing to change.

    `neighbour`: alone, and in full batches with other samples, at different places. `size`: alone, and
    in batches of every size (above 16: powers of two, those preferred, and the largest), at most ROWS rows
    of each.
    `instance`: the same full batch from several clients at once, twice as many as instances: a batch fills
    an instance, so the next goes to another one.
    """

    neighbour: tuple[TensorMatch, ...]
    size: tuple[TensorMatch, ...] = ()
    instance: tuple[TensorMatch, ...] = ()

    def failures(self, tolerances: Tolerances) -> Iterator[str]:
        """Every bound that does not hold."""
        for entries, what in (
            (self.neighbour, "an answer moved with its neighbours in the batch"),
            (self.size, "an answer moved with the size of its batch"),
            (self.instance, "instances answer differently"),
        ):
            for entry in entries:
                for why in entry.failures(tolerances.of(entry.output)):
                    yield f"invariance: {what}: {why}"

    @property
    def largest_difference(self) -> float:
        return max(entry.largest_difference for entry in (*self.neighbour, *self.size, *self.instance))


def prove(
    endpoint: Endpoint,
    samples: Path,
    serving: Serving,
    outputs: tuple[Tensor, ...],
    tolerances: Tolerances,
    timeout_s: float,
) -> Invariance:
    """Compare the answers of the loaded model.

    Raises:
        StepError: the server refused a request, did not answer within `timeout_s`, or is gone.
    """
    alone, batched = neighbours(endpoint, samples, serving.max_batch_size, timeout_s)
    found = Invariance(neighbour=match(outputs, batched, alone, tolerances))
    with connect(endpoint.grpc_url, endpoint.channel) as client:

        def ask(batch: Samples) -> Arrays:
            return infer(client, endpoint, batch, timeout_s)

        data = Samples.read(samples, server_config(client, endpoint.model))
        if serving.max_batch_size > 1:
            grown, alone = _sizes(ask, data, serving.max_batch_size, serving.preferred_batch_sizes)
            found = found.model_copy(update={"size": match(outputs, grown, alone, tolerances)})
        if serving.instances > 1:
            several, first = _instances(ask, data, serving)
            found = found.model_copy(update={"instance": match(outputs, several, first, tolerances)})
    return found


def _sizes(ask: Ask, data: Samples, largest: int, preferred: tuple[int, ...] = ()) -> tuple[Arrays, Arrays]:
    """The first samples in batches of growing size, and the same rows alone; some rows of large batches."""
    sizes = [n for n in range(2, largest + 1) if n <= EVERY_SIZE_UP_TO or n & (n - 1) == 0]
    rows = {size: _compared(size) for size in sorted({*sizes, largest, *preferred} - {1})}
    alone = {
        index: ask(data.batch(index, 1)) for index in sorted({i for found in rows.values() for i in found})
    }
    grown = []
    for size, found in rows.items():
        answer = ask(data.batch(0, size))
        grown.append({name: array[list(found)] for name, array in answer.items()})
    return joined(grown), joined([alone[index] for found in rows.values() for index in found])


def _compared(size: int) -> tuple[int, ...]:
    """Places in a batch of at least 2: all, or ROWS at even distances, first and last among them."""
    count = min(size, ROWS)
    return tuple(i * (size - 1) // (count - 1) for i in range(count))


def _instances(ask: Ask, data: Samples, serving: Serving) -> tuple[Arrays, Arrays]:
    """One full batch from many clients at once, several times; and its first answer as often."""
    batch, clients = data.batch(0, data.fixed or serving.max_batch_size), 2 * serving.instances
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda _: ask(batch), range(ROUNDS * clients)))
    return joined(answers), joined([answers[0]] * len(answers))
