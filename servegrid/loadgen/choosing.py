"""Which load generator measures on this host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from servegrid.domain.errors import UserError
from servegrid.domain.profile import GpuProfile
from servegrid.domain.values import Channel, Generator
from servegrid.host.cards import gpu_names
from servegrid.loadgen.generators import GENERATORS
from servegrid.plan.model_plan import KeptPlan
from servegrid.plan.options import SweepOptions
from servegrid.store.site import Site


def choose_generator(
    options: SweepOptions,
    site: Site,
    channel: Channel = Channel(),  # noqa: B008  # frozen
    of_profile: Generator | None = None,
) -> Generator:
    """The load generator of the options, or else of the profile. TLS and headers need the client: it keeps
    secrets off command lines. So do several cards of a host that are measured at once: perf_analyzers with
    shared memory take turns.

    Raises:
        UserError: the options or the profile name a generator that cannot be used here.
    """
    wanted = of_profile if options.generator == "auto" and of_profile else options.generator
    if wanted == "auto":
        alone = not options.workers or len(gpu_names()) < 2
        usable = alone and channel.plain and GENERATORS["perf_analyzer"].problem(site) is None
        return "perf_analyzer" if usable else "client"
    problem = GENERATORS[wanted].problem(site)
    if wanted == "perf_analyzer" and not channel.plain:
        problem = "perf_analyzer is not used over TLS or with headers: take --generator client"
    if problem:
        raise UserError(problem)
    return wanted


def for_campaign(options: SweepOptions, profiles: Iterable[GpuProfile]) -> SweepOptions:
    """The options of a campaign. Where its workers measure the CPU and cards, which may be of one host,
    `auto` becomes the client, because perf_analyzers of one host take turns. It does not where a profile
    names a generator."""
    if not options.workers or options.generator != "auto":
        return options
    found = list(profiles)
    if len({profile.device_kind for profile in found}) < 2 or any(profile.generator for profile in found):
        return options
    return options.model_copy(update={"generator": "client"})


def generator_notes(options: SweepOptions, plans: Sequence[KeptPlan], site: Site) -> tuple[str, ...]:
    """Why the project's client measures in place of perf_analyzer, the chosen or default generator."""
    if options.generator == "auto" and not options.workers:
        problem = GENERATORS["perf_analyzer"].problem(site)
        return (f"the project's own client measures: {problem}",) if problem else ()
    if options.generator != "perf_analyzer":
        return ()
    unbatched = dict.fromkeys(
        cell.product.model for entry in plans for cell in entry.plan.cells if not cell.static.batches
    )
    notes = [
        f"{name}: the client measures it: perf_analyzer sends batches of 1 to a model with a fixed first axis"
        for name in unbatched
    ]
    if options.request_rates or options.slo:
        notes.append(
            "the client sends at request rates: perf_analyzer counts a latency from the time at which it "
            "sends, not from the time at which it should have sent"
        )
    return tuple(notes)
