"""The commands `compare` and `tune` of `servegrid`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.local_server import api
from servegrid.cli.table import print_table, say
from servegrid.domain.errors import UserError
from servegrid.domain.names import LARGEST_INT32
from servegrid.plan.options import SweepOptions
from servegrid.store.site import default_site

MOST_PAIRS = 10_000
MOST_RELEVANT = 1000.0


def compare(
    a: Annotated[str, typer.Argument(help="A campaign, a folder of campaigns (repeats); --run: a cell.")],
    b: Annotated[str, typer.Argument(help="The newer one, which may have regressed.")],
    run: Annotated[
        bool, typer.Option("--run", help="Serve both cells here and measure them in interleaved runs.")
    ] = False,
    pairs: Annotated[
        int | None,
        typer.Option(min=2, max=MOST_PAIRS, help="With --run: pairs of runs at each point.  [default: 20]"),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="With --run: a file below gpu_profiles/.  [default: cpu]")
    ] = None,
    across: Annotated[
        bool, typer.Option("--across", help="Compare campaigns of different cards or settings.")
    ] = False,
    confidence: Annotated[
        float, typer.Option(min=0.5, max=0.9999, help="Confidence level of a cell's intervals.")
    ] = 0.99,
    relevant: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=MOST_RELEVANT,
            help="Smallest relative change reported.  [default: 0.02; 0.1 for single runs]",
        ),
    ] = None,
    every_point: Annotated[bool, typer.Option("--all", help="Show every figure of every point.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a pull request's comment here.")] = None,
) -> None:
    """Find regressions beyond noise; exits with 1 when a cell has regressed."""
    from servegrid.host.files import write_atomic
    from servegrid.regression import output
    from servegrid.regression.campaigns import Rule, read_repeats
    from servegrid.regression.campaigns import compare as compare_campaigns

    if not run and (pairs is not None or profile is not None):
        raise UserError("--pairs and --profile go with --run: campaigns are compared as they were measured")
    site, rule = default_site(), Rule(confidence=confidence, relevant=relevant, across=across)
    if run:
        from tasks.planning import cell_by_name

        options = SweepOptions(profiles=(profile or "cpu",))
        for cell in (a, b):
            cell_by_name(cell, options, site)  # a misspelt name is an error before a server starts
        with api(site):
            from flows.compare import compare_cells
            from servegrid.campaign.campaign import new_campaign
            from servegrid.regression.interleaved import PAIRS

            found = compare_cells(a, b, options, f"compare-{new_campaign()}", rule, pairs or PAIRS)
    else:
        found = compare_campaigns(read_repeats(a, site.results), read_repeats(b, site.results), rule)
    colours = {"regressed": "red", "improved": "green"}
    if every_point:
        rows = [line for cell in found.cells for line in output.lines(cell, cell.judged)]
        print_table(output.HEAD, rows, [colours.get(row[-1], "") for row in rows])
    else:
        rows = [output.line(cell) for cell in found.cells]
        print_table(output.CELL_HEAD, rows, [colours.get(row[1], "") for row in rows])
    about = (*found.conditions, *dict.fromkeys(d for cell in found.cells for d in cell.differences))
    broken = (f"{cell.cell}: {cell.broken}" for cell in found.cells if cell.broken)
    for text in (*about, *broken, found.method, output.summary(found)):
        say(text)
    for path, form in ((junit, output.junit), (markdown, output.markdown)):
        if path:
            write_atomic(path, form(found))
    if found.regressed:
        raise typer.Exit(1)


def tune(
    cell: Annotated[str, typer.Argument(help="A cell's name, as the plan prints it.")],
    slo: Annotated[str, typer.Option(help="The bound on a percentile of the latency: p99=50ms.")],
    instances: Annotated[
        list[int] | None,
        typer.Option("--instances", min=1, max=LARGEST_INT32, help="A number of instances to try."),
    ] = None,
    delays: Annotated[
        list[int] | None,
        typer.Option("--delay-us", min=0, max=LARGEST_INT32, help="A queue delay to try, in microseconds."),
    ] = None,
    max_concurrency: Annotated[
        int | None,
        typer.Option(
            min=1, max=LARGEST_INT32, help="Highest concurrency.  [default: 2 x max batch size x instances]"
        ),
    ] = None,
    profile: Annotated[str, typer.Option(help="A file below gpu_profiles/.")] = "cpu",
) -> None:
    """Find the instances, queue delay and preferred batch sizes with the highest throughput within a latency
    bound; exits with 1 when no setting meets it."""
    from servegrid.campaign.layout import CampaignLayout
    from servegrid.domain.slo import from_option
    from servegrid.loadgen.search.tuning import DELAYS_US, Axes
    from tasks.planning import cell_by_name

    site, wanted, options = default_site(), from_option(slo), SweepOptions(profiles=(profile,))
    cell_by_name(cell, options, site)  # a misspelt name is an error before a server starts
    with api(site):
        from flows.tune import tune_cell
        from servegrid.campaign.campaign import new_campaign

        axes = Axes(
            instances=tuple(instances or (1, 2)),
            delays_us=tuple(delays or DELAYS_US),
            max_concurrency=max_concurrency,
        )
        found = tune_cell(cell, wanted, axes, options, f"tune-{new_campaign()}")
    measured = sum(not trial.pruned for trial in found.trace)
    trace = CampaignLayout(folder=found.folder).trace("csv")
    left_out = len(found.trace) - measured
    say(f"{measured} points measured, {left_out} settings left out: {trace}")
    if found.best is None:
        say(f"no setting meets {wanted}")
        raise typer.Exit(1)
    best = found.best
    fails = f" (failed checks: {', '.join(best.failed_checks)})" if best.failed_checks else ""
    say(
        f"best within {wanted}: {best.setting}; concurrency {best.concurrency}: {best.throughput:.1f} "
        f"inferences/s, {wanted.statistic} {best.latency_ms:.2f} ms{fails}. Write it into `serving` of "
        f"model.yaml and sweep: a sweep checks its outputs."
    )
