"""Plans a campaign once, keeps the plan in the campaign's file, and adapts it to this host."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from servegrid.campaign.campaign import create, keep_plans, read
from servegrid.domain.errors import UnsupportedError, UserError, unknown
from servegrid.domain.plugins import Plugin, load_profile
from servegrid.domain.profile import GpuProfile
from servegrid.domain.releases import load_releases, why_not_on
from servegrid.domain.values import Bounds, Cell, Excluded, instances_of
from servegrid.formats import FORMATS
from servegrid.host.cards import card_name
from servegrid.host.environment import how_to_install, matches, missing
from servegrid.loadgen.choosing import choose_generator, for_campaign
from servegrid.plan.matrix import Plan, expand
from servegrid.plan.model_plan import KeptPlan, ModelPlan, with_generator, with_identity
from servegrid.plan.models import known_models, load_model
from servegrid.plan.options import SweepOptions
from servegrid.plan.server_choosing import adapt_to_server, choose_server
from servegrid.servers import SERVERS
from servegrid.sources.choosing import choose_plugins, choose_variant
from servegrid.store.other_environment import check
from servegrid.store.site import Site
from tasks import convert, export
from tasks.prepare import check_sources


def plan(options: SweepOptions, site: Site) -> tuple[ModelPlan, ...]:
    """The cells of every model on every profile, as this host can run them.

    Raises:
        UserError: a name is unknown, a YAML file is wrong, or a server does not answer.
    """
    return tuple(on_this_host(entry, options, site) for entry in plan_for_any_host(options, site))


def plan_for_any_host(options: SweepOptions, site: Site) -> tuple[ModelPlan, ...]:
    """The cells of every model on every profile, whatever is installed here.

    Raises:
        UserError: a name is unknown, a YAML file is wrong, or a server does not answer.
    """
    plugins, releases = choose_plugins(options, site), load_releases()
    providers = {name: provider.OPTIONS for name, provider in SERVERS.items()}
    found = []
    for profile in _profiles(options, site):
        choice = choose_server(options, profile, providers)
        capabilities = SERVERS[choice.name].capabilities(choice)
        for plugin in plugins:
            variant = choose_variant(options, plugin.spec)
            cells = expand(plugin.spec, variant, profile, capabilities, options, releases)
            adapted = adapt_to_server(with_identity(cells, plugin), choice, capabilities)
            found.append(ModelPlan(plugin=plugin, profile=profile, server=choice, plan=adapted))
    return tuple(found)


def begin(folder: Path, options: SweepOptions, site: Site) -> None:
    """Plan a new campaign and write its file. Without workers, this host must be ready for its cells.

    Raises:
        UserError: the options cannot be planned, this host is not ready, or the campaign exists already.
    """
    plans = plan_for_any_host(options, site)
    _check_host(plans, options, site)
    kept_options = for_campaign(options.anywhere(), [entry.profile for entry in plans])
    create(folder, kept_options, [entry.kept for entry in plans])


def resume(folder: Path, site: Site) -> None:
    """Check that a campaign can go on. One of an earlier version, which kept no plan, is planned again.

    Raises:
        UserError: there is no such campaign, or this host is not ready.
    """
    campaign = read(folder)
    if not campaign.plans:
        plans = plan_for_any_host(campaign.options, site)
        keep_plans(folder, [_with_old_names(entry.kept) for entry in plans])
    _check_host(kept_plans(folder, campaign.options, site), campaign.options, site)


def kept_plans(folder: Path, options: SweepOptions, site: Site) -> tuple[ModelPlan, ...]:
    """The kept plan of a campaign for the models and profiles of these options.

    Raises:
        UserError: the campaign, a model folder, a variant or a profile is missing or wrong.
    """
    plugins = {plugin.spec.name: plugin for plugin in choose_plugins(options, site)}
    profiles = {profile.name: profile for profile in _profiles(options, site)}
    found = []
    for kept in read(folder).plans:
        if kept.model not in plugins or kept.profile not in profiles:
            continue
        plugin = plugins[kept.model]
        for variant in {cell.product.variant for cell in kept.plan.every_cell} - set(plugin.spec.variants):
            raise unknown(f"variant of {kept.model}", variant, plugin.spec.variants)
        profile = profiles[kept.profile]
        found.append(ModelPlan(plugin=plugin, profile=profile, server=kept.server, plan=kept.plan))
    return tuple(found)


def on_this_host(model: ModelPlan, options: SweepOptions, site: Site) -> ModelPlan:
    """The plan with this host's load generator, and without the cells whose libraries are not installed
    here."""
    cells, excluded = [], list(model.plan.excluded)
    for cell in model.plan.cells:
        reason = _absent(model.plugin, model.profile, cell)
        if reason:
            excluded.append(Excluded(cell=cell, reason=reason))
        else:
            cells.append(cell)
    installed = Plan(cells=tuple(cells), excluded=tuple(excluded))
    generator = choose_generator(options, site, model.server.channel, model.profile.generator)
    return model.model_copy(update={"plan": with_generator(installed, generator)})


def cell_by_name(name: str, options: SweepOptions, site: Site) -> tuple[ModelPlan, Cell, str | None]:
    """The cell of that name with its model's plan, and the reason if the cell is excluded.

    Raises:
        UserError: no model has such a cell.
    """
    named: dict[str, Any] = Bounds.of_name(name).model_dump(exclude_none=True)
    if instances := instances_of(name):
        named["instances"] = (instances,)
    names: list[str] = []
    models = known_models(site.models)
    for model in [m for m in models if name.startswith(f"{m}-")] or models:
        for variant in load_model(site.models, model).spec.variants:
            one = options.model_copy(update={"models": (model,), "variant": variant, **named})
            for entry in plan(one, site):
                found: dict[str, tuple[Cell, str | None]] = {c.name: (c, None) for c in entry.plan.cells}
                found.update({e.cell.name: (e.cell, e.reason) for e in entry.plan.excluded})
                if name in found:
                    return entry, *found[name]
                names += found
    raise unknown("cell", name, names)


def preflight(options: SweepOptions, model: ModelPlan, site: Site) -> None:
    """Raises UserError with everything that this host lacks for the model's cells, before any work starts."""
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


def _check_host(plans: Sequence[ModelPlan], options: SweepOptions, site: Site) -> None:
    """Raises UserError if this host is to run the cells itself and is not ready for them."""
    if not options.workers:
        for entry in plans:
            preflight(options, on_this_host(entry, options, site), site)


def _profiles(options: SweepOptions, site: Site) -> list[GpuProfile]:
    return [load_profile(site.profiles, name) for name in dict.fromkeys(options.profiles)]


def _with_old_names(kept: KeptPlan) -> KeptPlan:
    """The plan with cells as the campaign's rows name them: an earlier version named none by its bounds."""
    unnamed = {"bounds": Bounds()}
    excluded = tuple(
        Excluded(cell=entry.cell.model_copy(update=unnamed), reason=entry.reason)
        for entry in kept.plan.excluded
    )
    cells = tuple(cell.model_copy(update=unnamed) for cell in kept.plan.cells)
    return kept.model_copy(update={"plan": Plan(cells=cells, excluded=excluded)})


def _absent(plugin: Plugin, profile: GpuProfile, cell: Cell) -> str | None:
    """What is not installed, here or in the format's own environment, to build and host the product."""
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
