"""`servegrid`: plan, why, sweep, report, pack, history, compare, tune, doctor, pools.

Exit codes: 0 done; 1 a cell is `error` or `failed_accuracy`, was not reached, or has regressed; 2 the input
is wrong or the host is not ready; 130 interrupted.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from flows.cli_comparing import compare, tune
from flows.cli_reporting import history, pack, report
from flows.local_server import api, prepare_environment
from flows.options import SweepOptions, with_sweep_options
from tasks.core.errors import ServegridError, UserError, printable, refusal
from tasks.core.site import default_site

app = typer.Typer(
    help="Builds every sensible way to serve a model on NVIDIA Triton, proves each one correct, measures it "
    "and says which to ship.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
INTERRUPTED = 128 + signal.SIGINT


@app.command()
@with_sweep_options
def plan(options: SweepOptions) -> None:
    """Show which cells would run, what is stored of them, their last time, and what is left out and why."""
    from flows import forecast
    from flows.planning import plan as make_plan
    from tasks.core.tables import last_wall_s

    site = default_site()
    last = last_wall_s(site.results)
    what = Column("stored, or why not run", overflow="fold")
    table = Table(Column("cell", overflow="fold"), "runs", "points", what, "expected")
    times: list[float | None] = []
    for entry in make_plan(options, site):
        for cell in entry.plan.cells:
            points = f"{cell.offline.extent}, {cell.online.extent}"
            found = forecast.expect(entry.plugin, cell, site, last)
            times.append(found.wall_s)
            seconds = "" if found.wall_s is None else f"{found.wall_s:.0f} s"
            table.add_row(cell.name, "yes", points, escape(found.line), seconds)
        for excluded in entry.plan.excluded:
            table.add_row(excluded.cell.name, "no", "", escape(excluded.reason), "")
    console.print(table)
    console.print(forecast.summary(times), highlight=False)


@app.command()
@functools.partial(
    with_sweep_options,
    without=(
        *("models", "variant", "formats", "precisions", "accelerators", "instances"),
        *("onnx", "torchscript", "savedmodel", "shapes", "samples", "model_dir", "workers", "queue"),
    ),
)
def why(
    cell: Annotated[str, typer.Argument(help="A cell's name, as the plan prints it.")], options: SweepOptions
) -> None:
    """Show, stage by stage, why a cell would be built or taken from the store, field by field."""
    from flows import forecast

    site = default_site()
    entry, found, left_out = forecast.find(cell, options, site)
    if left_out:
        console.print(f"{cell}: does not run: {left_out}", soft_wrap=True, markup=False, highlight=False)
        return
    for reason in forecast.why(entry.plugin, found, site):
        for line in reason.lines:
            console.print(line, soft_wrap=True, markup=False, highlight=False)


@app.command()
@with_sweep_options
def sweep(
    options: SweepOptions,
    resume: Annotated[
        str | None, typer.Option(help="Go on with this campaign, with its own options.")
    ] = None,
) -> None:
    """Build, serve, prove and measure every cell, then report."""
    from flows.campaigns import new_campaign, read
    from flows.planning import plan as make_plan
    from flows.planning import preflight
    from tasks.core.results import campaign_folder

    site = default_site()
    if resume is not None:
        if options.model_fields_set:
            raise UserError("--resume goes on with the campaign's own options: give no others")
        options = read(campaign_folder(site.results, resume)).options
    if options.workers and not os.environ.get("PREFECT_API_URL"):
        raise UserError("--workers: set PREFECT_API_URL to the Prefect server that the workers use")
    # Before Prefect starts; the flow, which may be started without this command, looks again.
    for entry in make_plan(options, site):
        if not options.workers:
            preflight(options, entry, site)
    with api(site) as url:
        from prefect import tags
        from prefect.client.schemas.objects import State

        from flows.sweep import sweep as sweep_flow

        campaign = resume or new_campaign()
        ui = url.removesuffix("/api")
        console.print(f"campaign {campaign}; Prefect UI at {ui} while it runs", soft_wrap=True)
        folder = site.results / campaign
        try:
            with tags(campaign):
                asked = (options, campaign, resume is not None)
                state = cast(State[Any], sweep_flow(*asked, return_state=True))
        except KeyboardInterrupt:
            console.print("interrupted; the rows of finished cells are kept")
            console.print(f"`servegrid sweep --resume {campaign}` goes on with the others", soft_wrap=True)
            _print_answer(folder)
            raise typer.Exit(INTERRUPTED) from None
        error = state.result(raise_on_failure=False) if state.is_failed() else None
        if isinstance(error, UserError):
            raise error  # of a campaign that somebody else leads, the report that is there says nothing
        _print_answer(folder)
        if state.is_crashed() or not (folder / "report.html").exists():
            raise UserError(f"the campaign did not run: {state.message}")
        console.print(state.message, soft_wrap=True)
    if not state.is_completed():
        raise typer.Exit(1)


for command in (report, pack, history, compare, tune):
    app.command()(command)


@app.command()
def doctor(
    install_server: Annotated[bool, typer.Option(help="Install the tritonserver binary first.")] = False,
    install_perf_analyzer: Annotated[bool, typer.Option(help="Install perf_analyzer first.")] = False,
) -> None:
    """Check this host, and say how to mend what is missing."""
    from tasks import doctor as checks

    site = default_site()
    if install_server:
        checks.install_server(site)
    if install_perf_analyzer:
        checks.install_perf_analyzer(site)
    found = checks.check(site)
    table = Table("what", "found", "how to mend it")
    for entry in found:
        table.add_row(entry.what, entry.found, escape(entry.mend), style="" if entry.mend == "" else "yellow")
    console.print(table)
    if any(entry.required and entry.mend for entry in found):
        raise typer.Exit(2)


pools = typer.Typer(help="Prefect's work pools, one for each profile.", no_args_is_help=True)
app.add_typer(pools, name="pools")


@pools.callback()
def pools_group() -> None:
    """Keeps `create` a command of its own."""


@pools.command("create")
def pools_create() -> None:
    """Make the work pool and queues of every profile, where they are not there yet."""
    from flows import pools as work_pools

    if not os.environ.get("PREFECT_API_URL"):
        raise UserError("pools are made on a Prefect server that stays: set PREFECT_API_URL")
    site = default_site()
    with api(site):
        made = work_pools.create(site)
    table = Table("pool", "profile", "")
    for pool in made:
        table.add_row(pool.name, pool.profile or "", "created" if pool.created else "was there")
    console.print(table)


class Progress(logging.Handler):
    """Shows the project's own log lines as they come."""

    def emit(self, record: logging.LogRecord) -> None:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        console.print(f"{clock} {record.getMessage()}", soft_wrap=True, markup=False, highlight=False)


def main() -> None:
    """The entry point of the `servegrid` command."""
    logger = logging.getLogger("servegrid")
    logger.setLevel(logging.INFO)
    logger.addHandler(Progress())
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        prepare_environment(default_site())
        app(standalone_mode=True)
    except (ServegridError, OSError) as error:
        said = error if isinstance(error, ServegridError) else refusal(error)
        if said is None:
            raise
        Console(stderr=True).print(
            f"servegrid: {printable(str(said))}", style="red", markup=False, soft_wrap=True
        )
        sys.exit(2)


def _print_answer(folder: Path) -> None:
    """What to ship, and where the report is, if there is one."""
    from tasks.core import results
    from tasks.core.asked import objective
    from tasks.reporting.answer import best

    if not (folder / "report.html").exists():
        return
    choices, verdict = best(*results.read(folder), slo=objective(folder))
    for choice in choices:
        what = "ship" if verdict == "passed" else "no recommendation, measured only:"
        console.print(f"{what} for {choice.sentence}", soft_wrap=True, markup=False, highlight=False)
    console.print(f"report: {folder / 'report.html'}", soft_wrap=True, highlight=False)


def _interrupt(signum: int, frame: Any) -> None:
    """A polite kill ends like Ctrl-C: everything that was started is stopped."""
    raise KeyboardInterrupt
