"""`servegrid` and its commands.

Exit codes: 0 done; 1 a cell is `error` or `failed_accuracy`, was not reached, or has regressed; 2 the input
is wrong or the host is not ready; 130 interrupted.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn, cast

import typer
from rich.console import Console
from typer.core import TyperCommand

from flows.local_server import api, prepare_environment
from servegrid.cli.comparing import compare, tune
from servegrid.cli.init import init
from servegrid.cli.offline import offline
from servegrid.cli.progress import show_everything, show_progress, shows_everything
from servegrid.cli.reporting import bundle, history, report
from servegrid.cli.sources import sources
from servegrid.cli.table import print_table, say
from servegrid.domain.errors import ServegridError, UserError, printable, refusal
from servegrid.plan.options import SweepOptions, with_sweep_options
from servegrid.plan.own_model import MODEL_FILES
from servegrid.store.site import default_site

app = typer.Typer(
    help="Builds every sensible way to serve a model on NVIDIA Triton, proves each one correct, measures it "
    "and says which to ship.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
INTERRUPTED = 128 + signal.SIGINT
UsageError: Any = typer.BadParameter.__base__
"""Typer brings a click of its own, and gives of its errors this one's heir."""


class Command(TyperCommand):
    """A command that runs with the environment that Prefect reads; `--help` and `--version` need none."""

    def invoke(self, ctx: Any) -> Any:
        prepare_environment(default_site())
        return super().invoke(ctx)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"servegrid {version('servegrid')}")
        raise typer.Exit


@app.callback()
def servegrid(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", help="Show commands, environments and all output; it slows what is measured."
        ),
    ] = False,
) -> None:
    """The options of the command itself; its help text is the app's."""
    if verbose:
        show_everything()


@app.command(cls=Command)
@with_sweep_options
def plan(options: SweepOptions) -> None:
    """Show which cells would run, with their stored stages and last time, and which are excluded, and why."""
    from flows.cell import build_requests
    from servegrid.campaign.tables import last_wall_s
    from servegrid.plan import forecast
    from tasks.planning import plan as make_plan

    site = default_site()
    last = last_wall_s(site.results)
    head = ("cell", "runs", "points", "stored, or why not run", "expected")
    rows: list[tuple[str, ...]] = []
    times: list[float | None] = []
    for entry in make_plan(options, site):
        for cell in entry.plan.cells:
            points = f"{cell.offline.extent}, {cell.online.extent}"
            wall_s = last.get((cell.name, cell.profile, cell.product.random_weights))
            try:
                found = forecast.expect(build_requests(entry.plugin, cell, site), site.store, wall_s)
            except UserError:
                found = forecast.Expected(missing="files that the variant reads are not there", wall_s=wall_s)
            times.append(found.wall_s)
            seconds = "" if found.wall_s is None else f"{found.wall_s:.0f} s"
            rows.append((cell.name, "yes", points, found.line, seconds))
        for excluded in entry.plan.excluded:
            rows.append((excluded.cell.name, "no", "", excluded.reason, ""))
    print_table(head, rows)
    say(forecast.summary(times))


@app.command(cls=Command)
@functools.partial(
    with_sweep_options,
    without=(
        *("models", "variant", "formats", "precisions", "accelerators", "instances"),
        *(*MODEL_FILES, "task", "shapes", "samples", "name", "signature", "model_dir", "workers", "queue"),
        *("labels", "metric", "threshold", "drop", "keep_inputs"),
    ),
)
def why(
    cell: Annotated[str, typer.Argument(help="A cell's name, as the plan prints it.")], options: SweepOptions
) -> None:
    """Show for each stage of a cell whether it would be built, and which field of its cache key changed."""
    from flows.cell import build_requests
    from servegrid.plan import forecast
    from tasks.planning import cell_by_name

    site = default_site()
    entry, found, left_out = cell_by_name(cell, options, site)
    if left_out:
        say(f"{cell}: does not run: {left_out}")
        return
    for reason in forecast.why(found, build_requests(entry.plugin, found, site), site.store):
        for line in reason.lines:
            say(line)


@app.command(cls=Command)
@with_sweep_options
def sweep(
    options: SweepOptions,
    resume: Annotated[str | None, typer.Option(help="Resume this campaign with its own options.")] = None,
) -> None:
    """Build, serve, prove and measure every cell, then report."""
    from servegrid.campaign.campaign import new_campaign, read
    from servegrid.campaign.layout import CampaignLayout
    from servegrid.campaign.results import campaign_folder
    from tasks import planning

    site = default_site()
    if resume is not None:
        if options.model_fields_set:
            raise UserError("--resume takes the campaign's own options: give no others")
        options = read(campaign_folder(site.results, resume)).options
    if options.workers and not os.environ.get("PREFECT_API_URL"):
        raise UserError("--workers: set PREFECT_API_URL to the Prefect server that the workers use")
    if options.workers and shows_everything():
        raise UserError(
            "--verbose: the workers' processes print their own output; leave it out with --workers"
        )
    campaign = resume or new_campaign()
    folder = site.results / campaign
    # On this host an error ends the command before Prefect starts. With workers Prefect runs already, and the
    # flow first looks for their deployments.
    if not options.workers:
        if resume is None:
            planning.begin(folder, options, site)
        else:
            planning.resume(folder, site)
    with api(site) as url:
        from prefect import tags
        from prefect.client.schemas.objects import State

        from flows.sweep import sweep as sweep_flow

        ui = url.removesuffix("/api")
        say(f"campaign {campaign}; Prefect UI at {ui} while it runs")
        exists = CampaignLayout(folder=folder).options.exists()
        try:
            with tags(campaign):
                state = cast(State[Any], sweep_flow(options, campaign, exists, return_state=True))
        except KeyboardInterrupt:
            say("interrupted; the rows of finished cells are kept")
            say(f"`servegrid sweep --resume {campaign}` goes on with the others")
            _print_recommendations(folder)
            raise typer.Exit(INTERRUPTED) from None
        error = state.result(raise_on_failure=False) if state.is_failed() else None
        if isinstance(error, UserError):
            raise error  # the report of a campaign that another process leads is not of this run
        _print_recommendations(folder)
        # Without an error the flow itself says how the campaign ended, perhaps before the first row.
        ended = error is None or CampaignLayout(folder=folder).report.exists()
        if state.is_crashed() or not ended:
            raise UserError(f"the campaign did not run: {state.message}")
        say(str(state.message))
    if not state.is_completed():
        raise typer.Exit(1)


for command in (init, sources, report, bundle, history, compare, tune):
    app.command(cls=Command)(command)


@app.command(cls=Command)
def doctor(
    install_server: Annotated[bool, typer.Option(help="Install the tritonserver binary first.")] = False,
    install_perf_analyzer: Annotated[bool, typer.Option(help="Install perf_analyzer first.")] = False,
) -> None:
    """Check this host, and show how to fix what is missing."""
    try:
        from servegrid.cli import doctor as checks
    except (ImportError, RuntimeError) as error:  # tritonclient makes the one of the other
        how = f"`{sys.executable} -m pip install -e .` in the checkout brings what is missing"
        raise UserError(f"servegrid itself is not whole: {error.__context__ or error}; {how}") from error

    site = default_site()
    if install_server:
        checks.install_server(site)
    if install_perf_analyzer:
        checks.install_perf_analyzer(site)
    found = checks.check(site)
    styles = ["yellow" if entry.fix else "" for entry in found]
    print_table(("what", "found"), [(entry.what, entry.found) for entry in found], styles)
    for entry in found:
        if entry.fix:  # a line each, which no column cuts: it can be copied
            say(f"to fix {entry.what}: {entry.fix}", style="yellow")
    if any(entry.required and entry.fix for entry in found):
        raise typer.Exit(2)


pools = typer.Typer(help="Prefect's work pools, one for each profile.", no_args_is_help=True)
app.add_typer(pools, name="pools")
app.add_typer(offline, name="offline")


@pools.callback()
def pools_group() -> None:
    """Keeps `create` a command of its own."""


@pools.command("create", cls=Command)
def pools_create() -> None:
    """Create the missing work pool, queues and deployment of every profile, and show how to start workers."""
    from flows import pools as work_pools

    if not os.environ.get("PREFECT_API_URL"):
        raise UserError("pools need a Prefect server of your own: set PREFECT_API_URL")
    site = default_site()
    with api(site):
        made = work_pools.create(site)
    rows = [(pool.name, pool.profile or "", "created" if pool.created else "exists") for pool in made]
    print_table(("pool", "profile", "state"), rows)
    for pool in made:  # a line each, which no column cuts: it can be copied
        say(pool.worker)


def main() -> None:
    """The entry point of the `servegrid` command."""
    show_progress()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = app(standalone_mode=False)
    except UsageError as error:
        message = " ".join(error.format_message().split())
        if not message:
            sys.exit(2)  # a group without a command: its help stands there already
        _fail(f"{message} (see `{error.ctx.command_path} --help`)" if error.ctx else message)
    except (ServegridError, OSError) as error:
        refused = str(error) if isinstance(error, ServegridError) else refusal(error)
        if refused is None:
            raise
        _fail(refused)
    sys.exit(code)


def _fail(message: str) -> NoReturn:
    """One line, and the exit code of wrong input."""
    Console(stderr=True).print(f"servegrid: {printable(message)}", style="red", markup=False, soft_wrap=True)
    sys.exit(2)


def _print_recommendations(folder: Path) -> None:
    """Print the recommendations and the path of the report, if there is one."""
    from servegrid.campaign import results
    from servegrid.campaign.layout import CampaignLayout
    from servegrid.campaign.options_file import objective
    from servegrid.reporting.recommendation import best

    page = CampaignLayout(folder=folder).report
    if not page.exists():
        return
    recommendations, verdict = best(*results.read(folder), slo=objective(folder))
    for chosen in recommendations:
        what = "" if verdict == "passed" else "no recommendation (measured only): "
        say(f"{what}{chosen.sentence}")
    say(f"report: {page}")


def _interrupt(signum: int, frame: Any) -> None:
    """SIGTERM ends like Ctrl-C: everything that was started is stopped."""
    raise KeyboardInterrupt
