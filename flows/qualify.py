"""The flow `qualify`: one model on one device, every stage of every cell, in the order they run."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from prefect import flow, tags

from flows.planning import ModelPlan, SweepOptions, plan, preflight
from flows.record import Record, Recorder
from tasks import baseline, convert, export, prepare, profile_data, reference
from tasks.caching import ensure
from tasks.configure import configure
from tasks.core.build import Workplace
from tasks.core.environment import host, versions
from tasks.core.results import Writer
from tasks.core.site import default_site
from tasks.core.values import Cell
from tasks.correctness import correctness
from tasks.deploy import deploy
from tasks.formats import FORMATS
from tasks.performance import offline, online
from tasks.servers import server

log = logging.getLogger("servegrid")

LIBRARIES = ("servegrid", "prefect", "tritonclient", "numpy")


@flow(name="qualify", flow_run_name="{options.models[0]} on {options.profile}")
def qualify(options: SweepOptions, campaign: str) -> None:
    """Qualify one model on this host's device; every cell ends as a row of the campaign.

    `options.models` holds the one model.
    """
    site = default_site()
    (model,) = plan(options, site)
    preflight(options, model, site)
    folder = site.results / campaign
    used = {*LIBRARIES, *model.plugin.spec.requires, *(lib for f in FORMATS.values() for lib in f.LIBRARIES)}
    recorder = Recorder(Writer(folder), campaign, host(), versions(used))
    for entry in model.plan.excluded:
        recorder.excluded(entry)
    for number, cell in enumerate(model.plan.cells, start=1):
        log.info("%s: cell %d of %d", cell.name, number, len(model.plan.cells))
        at = Workplace(
            site=site,
            plugin=model.plugin.folder,
            logs=folder / "logs",
            device=model.profile.name,
            cell=cell.name,
        )
        product = cell.product
        with (
            tags(product.model, product.format, product.precision, cell.profile),
            recorder.cell(cell) as record,
        ):
            run_cell(options, campaign, model, cell, at, record)


def run_cell(
    options: SweepOptions, campaign: str, model: ModelPlan, cell: Cell, at: Workplace, record: Record
) -> None:
    """Build, serve, prove and measure one cell."""
    plugin, product = model.plugin, cell.product
    prepared = ensure(prepare.prepare, prepare.request(plugin, product, at.site), at)
    exported = ensure(export.export, export.request(plugin, product, prepared), at)
    converted = ensure(convert.convert, convert.request(product, exported), at)
    record.artifact = converted
    samples = ensure(profile_data.profile_data, profile_data.request(plugin, product, prepared), at)
    expected = ensure(reference.reference, reference.request(plugin, product, prepared, samples), at)
    framework = baseline.request(plugin, cell, prepared, samples, campaign)
    record.baseline = baseline.read(ensure(baseline.baseline, framework, at), at)

    with tempfile.TemporaryDirectory(prefix="servegrid-") as folder:
        configured = configure(cell, converted, Path(folder), at)
        log_path = at.logs / f"{cell.name}.tritonserver.log"
        with server(options.server, at.site, Path(folder), log_path) as running:
            # Accuracy is proven through the dynamic batcher, so that serving comes first.
            endpoint = deploy(running, configured, "dynamic", cell.dynamic, samples, at)
            record.correctness = correctness(plugin, cell, endpoint, prepared, samples, expected, at)
            if record.correctness.failures:
                return  # how fast it gives wrong answers is of no use
            points = online(cell.online, endpoint, samples, at)
            record.measured.append((cell.online, cell.dynamic, endpoint, points))
            endpoint = deploy(running, configured, "static", cell.static, samples, at)
            points = offline(cell.offline, endpoint, samples, at)
            record.measured.append((cell.offline, cell.static, endpoint, points))
