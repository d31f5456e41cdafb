"""The flow `qualify`: one model on one device, every stage of every cell, in the order they run."""

from __future__ import annotations

import logging
from typing import Any

from prefect import flow, runtime, tags
from prefect.context import TagsContext
from prefect.exceptions import TerminationSignal
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.states import Completed, Failed

from flows.planning import plan, preflight
from flows.record import Outcome, Record, Recorder
from servegrid.campaign.campaign import working
from servegrid.campaign.options_file import profile_folder
from servegrid.campaign.results import FAILING, Writer, campaign_folder, finished
from servegrid.domain.plugins import Plugin, load_profile
from servegrid.domain.roofline import Roofline
from servegrid.domain.server import ServerChoice
from servegrid.domain.values import ArtifactRef, Cell, Product, Value
from servegrid.formats import FORMATS
from servegrid.host.environment import host, pin_card, versions
from servegrid.plan.options import SweepOptions
from servegrid.plan.server_choosing import of_cell
from servegrid.servers import server
from servegrid.store.build import Workplace
from servegrid.store.site import Site, default_site
from tasks import baseline, ceilings, convert, export, prepare, profile_data, reference
from tasks.caching import Make, ensure
from tasks.configure import configure
from tasks.correctness import answers_of, correctness
from tasks.deploy import deploy
from tasks.performance import offline, online
from tasks.report import summarize

log = logging.getLogger("servegrid")

LIBRARIES = ("servegrid", "prefect", "tritonclient", "numpy")


@flow(name="qualify", flow_run_name="{options.label}")
def qualify(options: SweepOptions, campaign: str, attempt: int | None = None) -> None:
    """Qualify one model on this host's device; every cell ends as a row of the campaign.

    The options name the one model and profile. Cells that the campaign has finished before are left alone.
    A run with an attempt works for a campaign that another process leads, and ends with that.
    """
    site = default_site()
    folder, run = campaign_folder(site.results, campaign), str(runtime.flow_run.id)
    # This run's heartbeat, which goes on, is enough: a cell with one of its own ends up to 1 s late (ADR 4).
    cells_without_heartbeat = temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None})
    with working(folder, options, attempt, run), cells_without_heartbeat:
        (model,) = plan(options, site)
        if attempt is not None:  # else its leader, in this process, has looked
            preflight(options, model, site)
        pin_card()
        done = finished(folder)
        rows = recorder(model.plugin, campaign, run, options)
        for entry in model.plan.excluded:
            if (entry.cell.name, entry.cell.profile) not in done:
                rows.without_run(entry.cell, Outcome(verdict="unsupported", reason=entry.reason))
        cells = [cell for cell in model.plan.cells if (cell.name, cell.profile) not in done]
        for number, cell in enumerate(cells):
            log.info("%s: cell %d of %d", cell.name, number + 1, len(cells))
            try:
                product = cell.product
                with tags(campaign, product.model, product.format, product.precision, cell.profile):
                    qualify_cell(model.plugin, cell, model.server, campaign, run, options, return_state=True)
            except (KeyboardInterrupt, TerminationSignal):
                for left in cells[number:]:
                    rows.without_run(left, Outcome(verdict="skipped", reason="interrupted"))
                raise
        summarize(folder, model.profile.name, run)


@flow(name="cell", flow_run_name="{cell.name}")
def qualify_cell(
    plugin: Plugin, cell: Cell, choice: ServerChoice, campaign: str, run: str, options: SweepOptions
) -> Any:
    """Build, serve, prove and measure one cell; failed when its verdict fails the campaign."""
    at = workplace(plugin, cell, default_site(), campaign)
    # The flow run bears the tags. For each tag of a task run Prefect asks for a concurrency slot, a
    # request that SQLite often refuses while states are being recorded, and then it waits 2 s.
    rows = recorder(plugin, campaign, run, options)
    with TagsContext(current_tags=set()), rows.cell(cell) as record:
        built = build_cell(plugin, cell, campaign, at)
        record.artifact = built.converted
        record.baseline = baseline.read(built.baseline, at) if built.baseline else {}
        record.roofline = roofline(built, at)
        measure_cell(plugin, cell, built, choice, at, record)
    assert record.outcome is not None
    failed = record.outcome.verdict in FAILING
    return Failed(message=record.outcome.line) if failed else Completed(message=record.outcome.line)


def workplace(plugin: Plugin, cell: Cell, site: Site, campaign: str) -> Workplace:
    """Where the steps of a cell run."""
    return Workplace(
        site=site,
        plugin=plugin.folder,
        paths=plugin.paths,
        logs=profile_folder(site.results / campaign, cell.profile) / "logs",
        profile=cell.profile,
        cell=cell.name,
        timeout_s=plugin.spec.variants[cell.product.variant].step_timeout_s,
        environments=convert.environments(load_profile(site.profiles, cell.profile)),
    )


def recorder(plugin: Plugin, campaign: str, run: str, options: SweepOptions) -> Recorder:
    """Writes this model's rows of the campaign, with the versions of all that its cells use."""
    libraries = {library for module in FORMATS.values() for library in module.LIBRARIES}
    used = versions({*LIBRARIES, *plugin.spec.requires, *libraries})
    writer = Writer(default_site().results / campaign)
    return Recorder(writer, campaign, host(), used, options.anywhere(), run)


class Built(Value):
    """The artifacts of a cell."""

    prepared: ArtifactRef | None
    converted: ArtifactRef
    samples: ArtifactRef
    reference: ArtifactRef
    baseline: ArtifactRef | None
    ceilings: ArtifactRef | None


def roofline(built: Built, at: Workplace) -> Roofline | None:
    """What the model costs and the machine reaches; None where the latter was not measured."""
    if built.ceilings is None:
        return None
    return Roofline(count=reference.count(built.reference, at), ceilings=ceilings.read(built.ceilings, at))


def build_cell(plugin: Plugin, cell: Cell, campaign: str, at: Workplace, make: Make = ensure) -> Built:
    """Every build stage, in order; what is stored already is taken from the store."""
    product = cell.product
    prepared = None
    if plugin.prepares and not product.random_weights:
        prepared = make(prepare.prepare, prepare.request(plugin, product, at.site), at)
    exported = make(export.export, export.request(plugin, product, prepared), at)
    converted = convert_product(plugin, product, prepared, exported, at, make)
    samples = make(profile_data.profile_data, profile_data.request(plugin, cell, prepared), at)
    expected = make(reference.reference, reference.request(plugin, cell, prepared, samples), at)
    reached = make(ceilings.ceilings, ceilings.request(cell), at) if ceilings.measured() else None
    framework = None
    if baseline.measured(plugin, cell):
        framework = make(baseline.baseline, baseline.request(plugin, cell, prepared, samples, campaign), at)
    return Built(
        prepared=prepared,
        converted=converted,
        samples=samples,
        reference=expected,
        baseline=framework,
        ceilings=reached,
    )


def convert_product(
    plugin: Plugin,
    product: Product,
    prepared: ArtifactRef | None,
    exported: ArtifactRef,
    at: Workplace,
    make: Make,
) -> ArtifactRef:
    """The conversions from the export to the product, each of what it is made of."""
    made_of = convert.source(product)
    source = convert_product(plugin, made_of, prepared, exported, at, make) if made_of else exported
    calibration = None
    if convert.calibrated(product):
        wanted = profile_data.calibration(plugin, product, prepared)
        calibration = make(profile_data.profile_data, wanted, at)
    return make(convert.convert, convert.request(plugin, product, source, calibration, at.environments), at)


def measure_cell(
    plugin: Plugin, cell: Cell, built: Built, choice: ServerChoice, at: Workplace, record: Record
) -> None:
    """Serve what was built, prove it correct, measure it."""
    repository = at.logs.parent / "repositories" / cell.name
    workspace = plugin.spec.variants[cell.product.variant].convert.workspace_bytes
    configured = configure(cell, built.converted, repository, at, workspace)
    log_path = at.logs / f"{cell.name}.tritonserver.log"
    with (
        server(of_cell(choice, cell), at.site, repository, log_path) as running,
        record.memory_of(running.pid),
    ):
        # Accuracy is proven through the dynamic batcher, so that serving comes first.
        sizes = (*cell.offline.batch_sizes, cell.dynamic.max_batch_size)
        endpoint = deploy(running, configured, cell.dynamic, built.samples, at, sizes)
        record.endpoint = endpoint
        record.correctness = correctness(
            plugin, cell, endpoint, built.prepared, built.samples, built.reference, at
        )
        if record.correctness.failures:
            return  # how fast it gives wrong answers is of no use
        expected = answers_of(plugin, cell, built.reference, at)
        with record.measuring(cell.online, cell.dynamic, endpoint) as points:
            points += online(cell.online, cell.dynamic, endpoint, built.samples, expected, at)
        endpoint = deploy(running, configured, cell.static, built.samples, at)
        with record.measuring(cell.offline, cell.static, endpoint) as points:
            points += offline(cell.offline, cell.static, endpoint, built.samples, expected, at)
