"""Searches the serving with the highest throughput within a latency bound: a grid, pruned on the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from servegrid.domain.errors import UserError
from servegrid.domain.slo import Slo
from servegrid.domain.values import Serving, Value

DELAYS_US = (1, 100, 1000, 5000)
WORTH = 0.02
"""Smallest gain, as a share, that counts."""
HOPELESS = 0.10
"""A setting that is worse by this share at the best setting's concurrency is left out."""


class Setting(Value):
    """The fields of a serving that are tuned."""

    instances: int
    preferred_batch_sizes: tuple[int, ...]
    max_queue_delay_us: int

    def serving(self, serving: Serving) -> Serving:
        """The serving with this setting."""
        return serving.model_copy(update=self.model_dump())

    def __str__(self) -> str:
        preferred = ", ".join(map(str, self.preferred_batch_sizes)) or "none"
        return f"{self.instances} instance(s), preferred {preferred}, delay {self.max_queue_delay_us} us"


class Axes(Value):
    """The values to try. The default of `max_concurrency` is 2 x max batch size x instances."""

    instances: tuple[int, ...] = (1, 2)
    delays_us: tuple[int, ...] = DELAYS_US
    max_concurrency: int | None = None


class Trial(Value):
    """A measured point with its failed trust checks, or a setting that was left out, with the reason
    (`pruned`)."""

    setting: Setting
    concurrency: int | None = None
    throughput: float | None = None
    latency_ms: float | None = None
    stable: bool | None = None
    holds: bool = False
    failed_checks: tuple[str, ...] = ()
    pruned: str = ""


Measure = Callable[[Setting, int], Trial]
"""Loads a setting, unless it is loaded, and measures it at a concurrency."""


def grid(serving: Serving, axes: Axes) -> tuple[Setting, ...]:
    """Every setting, simple ones first: by instances, then preferred sizes, then delays.

    Raises:
        UserError: the serving does not batch, so there is nothing to tune.
    """
    if not serving.batches:
        raise UserError("max_batch_size 0: a cell whose server does no batching has nothing to tune")
    most = serving.max_batch_size
    halves = tuple(sorted({max(most // 2, 1), most}))
    preferred = dict.fromkeys([(), (most,), halves, serving.preferred_batch_sizes])
    return tuple(
        Setting(instances=count, preferred_batch_sizes=sizes, max_queue_delay_us=delay)
        for count, sizes, delay in itertools.product(
            sorted(set(axes.instances)), preferred, sorted(set(axes.delays_us))
        )
    )


def search(settings: Sequence[Setting], measure: Measure, slo: Slo, most: int) -> list[Trial]:
    """Every trial, measured or left out, in order.

    The concurrency of a setting doubles, from that of the best trial so far up to `most`, as long as the
    bound holds and throughput grows. A setting is left out when its queue delay alone reaches the bound, when
    more instances no longer helped, and when it is worse than the best one at that one's concurrency.
    """
    trace: list[Trial] = []
    best_of: dict[int, float] = {}
    for setting in settings:
        reason = _hopeless(setting, slo, best_of)
        if reason:
            trace.append(Trial(setting=setting, pruned=reason))
            continue
        climbed = _climb(setting, measure, most, winner(trace))
        trace += climbed
        reached = max((trial.throughput or 0.0 for trial in climbed if trial.holds), default=0.0)
        best_of[setting.instances] = max(best_of.get(setting.instances, 0.0), reached)
    return trace


def winner(trace: Sequence[Trial]) -> Trial | None:
    """The trial with the highest throughput within the bound; a later one must gain at least WORTH."""
    best: Trial | None = None
    for trial in trace:
        rate = trial.throughput or 0.0
        if trial.holds and (best is None or rate > (best.throughput or 0.0) * (1 + WORTH)):
            best = trial
    return best


def _hopeless(setting: Setting, slo: Slo, best_of: dict[int, float]) -> str:
    if setting.max_queue_delay_us / 1e3 >= slo.limit_ms:
        return f"its queue delay alone is the {slo.limit_ms:g} ms allowed"
    fewer = sorted(count for count in best_of if count < setting.instances)
    if len(fewer) > 1 and best_of[fewer[-1]] <= best_of[fewer[-2]] * (1 + WORTH):
        return f"{fewer[-1]} instances were not better than {fewer[-2]}"
    return ""


def _climb(setting: Setting, measure: Measure, most: int, best: Trial | None) -> list[Trial]:
    found: list[Trial] = []
    concurrency, last = (best.concurrency or 1) if best else 1, 0.0
    while concurrency <= most:
        trial = measure(setting, concurrency)
        found.append(trial)
        rate = trial.throughput or 0.0
        if best and len(found) == 1 and (not trial.holds or rate < (best.throughput or 0.0) * (1 - HOPELESS)):
            worse = f"at concurrency {concurrency} it does worse than: {best.setting}"
            return [*found, Trial(setting=setting, pruned=worse)]
        if not trial.holds or rate <= last * (1 + WORTH):
            break
        concurrency, last = 2 * concurrency, rate
    return found
