"""From a sweep's options to cells, and what is missing before they can run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from servegrid.domain.errors import UnsupportedError, UserError
from servegrid.domain.plugins import Plugin, load_profile
from servegrid.domain.profile import GpuProfile
from servegrid.domain.releases import load_releases, why_not_on
from servegrid.domain.server import ServerCapabilities, ServerChoice
from servegrid.domain.values import Cell, Channel, Excluded, Generator
from servegrid.formats import FORMATS
from servegrid.host.environment import card_name, how_to_install, matches, missing
from servegrid.loadgen import GENERATORS
from servegrid.plan.matrix import Plan, expand
from servegrid.plan.model_plan import ModelPlan
from servegrid.plan.options import SweepOptions
from servegrid.plan.server_choosing import adapt_to_server, choose_server
from servegrid.servers import SERVERS
from servegrid.sources.choosing import choose_plugins, choose_variant
from servegrid.store.other_environment import check
from servegrid.store.site import Site
from tasks import convert, export
from tasks.prepare import check_sources


def choose_generator(options: SweepOptions, site: Site, channel: Channel = Channel()) -> Generator:  # noqa: B008  # frozen
    """The wanted load generator; TLS and headers are the client's: it keeps secrets off command lines.

    Raises:
        UserError: the generator was chosen by name and cannot be used here.
    """
    if options.generator == "auto":
        usable = GENERATORS["perf_analyzer"].problem(site) is None and channel.plain
        return "perf_analyzer" if usable else "client"
    problem = GENERATORS[options.generator].problem(site)
    if options.generator == "perf_analyzer" and not channel.plain:
        problem = "perf_analyzer is not used over TLS or with headers: take --generator client"
    if problem:
        raise UserError(problem)
    return options.generator


def plan(options: SweepOptions, site: Site) -> tuple[ModelPlan, ...]:
    """The cells of every model on every profile.

    Raises:
        UserError: a name is unknown, or a YAML file is wrong.
    """
    profiles = [load_profile(site.profiles, name) for name in dict.fromkeys(options.profiles)]
    plugins = choose_plugins(options, site)
    releases = load_releases()
    found = []
    capabilities_of = {profile.name: _capabilities(options, profile) for profile in profiles}
    for profile, plugin in ((profile, plugin) for profile in profiles for plugin in plugins):
        choice, capabilities = capabilities_of[profile.name]
        cells = expand(
            plugin.spec,
            choose_variant(options, plugin.spec),
            profile,
            generator=choose_generator(options, site, choice.channel),
            triton_release=capabilities.release,
            other_releases=capabilities.releases,
            releases=releases,
            selection=options,
            random_weights=options.random_weights,
            backends=capabilities.backends,
        )
        made = adapt_to_server(_without_absent(plugin, profile, cells), choice, capabilities)
        found.append(ModelPlan(plugin=plugin, profile=profile, plan=made, server=choice))
    return tuple(found)


def generator_notes(options: SweepOptions, plans: Sequence[ModelPlan], site: Site) -> tuple[str, ...]:
    """Why the project's client measures where perf_analyzer was chosen, by name or by default."""
    if options.generator == "auto" and not options.workers:
        problem = GENERATORS["perf_analyzer"].problem(site)
        return (f"the project's own client measures: {problem}",) if problem else ()
    if options.generator != "perf_analyzer":
        return ()
    fixed = dict.fromkeys(m.plugin.spec.name for m in plans if m.plugin.spec.fixed_batch)
    found = [
        f"{name}: the client measures it: perf_analyzer's requests to a model of a fixed first axis have a "
        "batch of 1"
        for name in fixed
    ]
    if options.request_rates or options.slo:
        found.append(
            "the client sends at request rates: perf_analyzer counts a latency from the time at which it "
            "sends, not from that at which it should have"
        )
    return tuple(found)


def _capabilities(options: SweepOptions, profile: GpuProfile) -> tuple[ServerChoice, ServerCapabilities]:
    """The server of a profile's cells, and what it can do."""
    choice = choose_server(options, profile, SERVERS)
    return choice, SERVERS[choice.name].capabilities(choice)


def _without_absent(plugin: Plugin, profile: GpuProfile, plan: Plan) -> Plan:
    """The plan without the cells whose libraries are not installed here: those of the other models run."""
    cells, excluded = [], list(plan.excluded)
    for cell in plan.cells:
        reason = _absent(plugin, profile, cell)
        if reason:
            excluded.append(Excluded(cell=cell, reason=reason))
        else:
            cells.append(cell)
    return Plan(cells=tuple(cells), excluded=tuple(excluded))


def _absent(plugin: Plugin, profile: GpuProfile, cell: Cell) -> str | None:
    """What is not installed that building, and hosting, the product needs, here or in its own environment."""
    product, serving_format = cell.product, FORMATS[cell.product.format]
    hosted = serving_format.libraries if cell.dynamic.backend == "hosted" else ()
    converting = convert.libraries(product, profile.environments)
    absent = missing(export.libraries(plugin.spec, product.export_format) | converting | set(hosted))
    if absent:
        return f"not installed: {', '.join(absent)}; in the checkout run `{how_to_install(absent)}`"
    tools = [tool for tool in serving_format.tools if not shutil.which(tool)]
    if tools:
        return f"not installed: {', '.join(tools)}; install it with the system's package manager"
    if environment := profile.environments.get(product.format):
        try:
            check(environment, convert.needed_elsewhere(product.format))
        except UnsupportedError as error:
            return f"gpu_profiles/{profile.name}.yaml, environments.{product.format}: {error}"
    return None


def preflight(options: SweepOptions, model: ModelPlan, site: Site) -> None:
    """Raises UserError with everything that is missing for this model's cells, before any work starts."""
    problems = SERVERS[model.server.name].problems(site, model.server)
    profile = model.profile
    if not matches(profile):
        found = card_name() or "no NVIDIA card"
        problems.append(f"profile {profile.name!r}: this host has no {profile.description}, but {found}")
    elif profile.compute_capability:
        used = {cell.product.triton_release for cell in model.plan.cells}
        reasons = [
            why_not_on(release, profile.compute_capability, load_releases()) for release in sorted(used)
        ]
        problems += [reason for reason in reasons if reason]
    if problems:
        raise UserError("this host is not ready:\n" + "\n".join(f"  {p}" for p in problems))
    if model.plan.cells and not options.random_weights:
        check_sources(model.plugin, model.plan.cells[0].product.variant, site)
