"""The flow `cell`: every stage of one cell, in the order in which they run."""

from __future__ import annotations

import os
from typing import Any

from prefect import flow
from prefect.context import TagsContext
from prefect.states import Completed, Failed

from flows.serving import serve
from servegrid.campaign.cell_result import CellResult
from servegrid.campaign.cell_writer import CellWriter
from servegrid.campaign.layout import CampaignLayout
from servegrid.campaign.results import FAILING, Writer
from servegrid.domain.plugins import Plugin, load_profile
from servegrid.domain.roofline import Roofline
from servegrid.domain.server import ServerChoice
from servegrid.domain.values import ArtifactRef, Cell, Product, Value
from servegrid.formats import FORMATS
from servegrid.host.cards import using
from servegrid.host.environment import host, versions
from servegrid.plan.options import SweepOptions
from servegrid.store.build import Workplace
from servegrid.store.site import Site, default_site
from servegrid.store.store import BuildRequest
from servegrid.store.why import UNKNOWN
from tasks import baseline, ceilings, convert, export, prepare, profile_data, reference
from tasks.caching import BuildTask, Make, ensure
from tasks.correctness import Proofs, answers_of, correctness
from tasks.performance import performance

LIBRARIES = ("servegrid", "prefect", "tritonclient", "numpy")


class Built(Value):
    """The artifacts of a cell."""

    prepared: ArtifactRef | None
    converted: ArtifactRef
    samples: ArtifactRef
    reference: ArtifactRef
    converted_answers: ArtifactRef | None
    baseline: ArtifactRef | None
    ceilings: ArtifactRef | None


@flow(name="cell", flow_run_name="{cell.name}")
def qualify_cell(
    plugin: Plugin, cell: Cell, choice: ServerChoice, campaign: str, run: str, options: SweepOptions
) -> Any:
    """Build, serve, prove and measure one cell; failed when its verdict fails the campaign."""
    at = workplace(plugin, cell, default_site(), campaign)
    writer = cell_writer(plugin, campaign, run, options)
    # The flow run bears the tags. For each tag of a task run Prefect requests a concurrency slot, which
    # SQLite often refuses while states are being recorded, and then it waits 2 s.
    with TagsContext(current_tags=set()), writer.running(cell) as result:
        built = build_cell(plugin, cell, campaign, at)
        result.artifact, result.samples = built.converted, built.samples
        result.baseline = baseline.read(built.baseline, at) if built.baseline else {}
        result.roofline = roofline(built, at)
        measure_cell(plugin, cell, built, choice, at, result, keep_inputs=options.keep_inputs)
    assert result.outcome is not None
    failed = result.outcome.verdict in FAILING
    return Failed(message=result.outcome.line) if failed else Completed(message=result.outcome.line)


def build_cell(plugin: Plugin, cell: Cell, campaign: str, at: Workplace, make: Make = ensure) -> Built:
    """Every build stage, in order; artifacts that exist are taken from the store."""
    product = cell.product
    prepared = None
    if plugin.prepares and not product.random_weights:
        prepared = make(prepare.prepare, prepare.request(plugin, product, at.site), at)
    exported = make(export.export, export.request(plugin, product, prepared), at)
    converted = convert_product(plugin, product, prepared, exported, at, make)
    samples = make(profile_data.profile_data, profile_data.request(plugin, cell, prepared), at)
    expected = make(reference.reference, reference.request(plugin, cell, prepared, samples), at)
    answers = None
    if reference.converted_model_runs(cell, at):
        wanted = reference.converted_request(plugin, cell, converted, samples)
        answers = make(reference.converted_answers, wanted, at)
    reached = make(ceilings.ceilings, ceilings.request(cell), at) if ceilings.measured() else None
    framework = None
    if baseline.measured(plugin, cell):
        framework = make(baseline.baseline, baseline.request(plugin, cell, prepared, samples, campaign), at)
    return Built(
        prepared=prepared,
        converted=converted,
        samples=samples,
        reference=expected,
        converted_answers=answers,
        baseline=framework,
        ceilings=reached,
    )


def build_requests(plugin: Plugin, cell: Cell, site: Site) -> tuple[BuildRequest, ...]:
    """The request of every build stage, in order; nothing is built. An input that the store lacks is UNKNOWN.

    The baseline is left out: each campaign measures it anew.

    Raises:
        UserError: files that the variant reads are missing.
    """
    found: list[BuildRequest] = []

    def look_up(stage: BuildTask, request: BuildRequest, at: Workplace) -> ArtifactRef:
        if request.stage != "baseline":
            found.append(request)
        return site.store.known(request.key) or UNKNOWN

    if not cell.product.random_weights:
        prepare.check_sources(plugin, cell.product.variant, site)
    with using(cell.dynamic.device_kind):
        build_cell(plugin, cell, "the next one", workplace(plugin, cell, site, "the next one"), make=look_up)
    return tuple(found)


def measure_cell(
    plugin: Plugin,
    cell: Cell,
    built: Built,
    choice: ServerChoice,
    at: Workplace,
    result: CellResult,
    *,
    keep_inputs: bool,
) -> None:
    """Serve the built model, prove it correct, measure it."""
    samples = built.samples
    with (
        serve(plugin, cell, built.converted, samples, choice, at) as served,
        result.memory_of(served.running.pid),
    ):
        # Accuracy is proven through the dynamic batcher, so the dynamic serving comes first.
        endpoint = served.load(cell.dynamic, (*cell.offline.batch_sizes, cell.dynamic.max_batch_size))
        result.endpoint = endpoint
        proofs = Proofs(
            prepared=built.prepared,
            samples=samples,
            reference=built.reference,
            converted_answers=built.converted_answers,
        )
        result.correctness = correctness(plugin, cell, endpoint, proofs, at, keep_inputs=keep_inputs)
        if result.correctness.failures:
            return  # how fast wrong answers are given is of no use
        expected = answers_of(plugin, cell, built.reference, at)
        with result.measuring(cell.online, cell.dynamic, endpoint) as points:
            points += performance(cell.online, cell.dynamic, endpoint, samples, expected, at)
        endpoint = served.load(cell.static)
        with result.measuring(cell.offline, cell.static, endpoint) as points:
            points += performance(cell.offline, cell.static, endpoint, samples, expected, at)


def convert_product(
    plugin: Plugin,
    product: Product,
    prepared: ArtifactRef | None,
    exported: ArtifactRef,
    at: Workplace,
    make: Make,
) -> ArtifactRef:
    """The conversions from the export to the product, each from the one before."""
    made_of = convert.source(product)
    source = convert_product(plugin, made_of, prepared, exported, at, make) if made_of else exported
    calibration = None
    if convert.calibrated(product):
        wanted = profile_data.calibration(plugin, product, prepared)
        calibration = make(profile_data.profile_data, wanted, at)
    return make(convert.convert, convert.request(plugin, product, source, calibration, at.environments), at)


def workplace(plugin: Plugin, cell: Cell, site: Site, campaign: str) -> Workplace:
    """Where the steps of a cell run."""
    return Workplace(
        site=site,
        plugin=plugin.folder,
        paths=plugin.paths,
        logs=CampaignLayout(folder=site.results / campaign).profile(cell.profile).logs,
        profile=cell.profile,
        cell=cell.name,
        timeout_s=plugin.spec.variants[cell.product.variant].step_timeout_s,
        environments=convert.environments(load_profile(site.profiles, cell.profile)),
    )


def cell_writer(plugin: Plugin, campaign: str, run: str, options: SweepOptions) -> CellWriter:
    """Writes this model's rows of the campaign, with the versions of all libraries that its cells use."""
    libraries = {library for known in FORMATS.values() for library in known.libraries}
    used = versions({*LIBRARIES, *plugin.spec.requires, *libraries})
    writer = Writer(default_site().results / campaign)
    worker = os.environ.get("PREFECT__WORKER_NAME")  # Prefect's worker gives it to the processes of its runs
    return CellWriter(writer, campaign, host(), used, options.anywhere(), run, worker)


def roofline(built: Built, at: Workplace) -> Roofline | None:
    """The model's cost and the machine's ceilings; None if the latter were not measured."""
    if built.ceilings is None:
        return None
    return Roofline(count=reference.read(built.reference, at), ceilings=ceilings.read(built.ceilings, at))
