"""`servegrid report | pack | history`: what a campaign found, shown, handed over, and beside earlier ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from tasks.core.errors import UserError, unknown
from tasks.core.site import default_site

console = Console()


def report(
    campaign: Annotated[str, typer.Argument(help="A folder below results/.")],
    partial: Annotated[bool, typer.Option(help="Also of a campaign that has cells left to run.")] = False,
    slo: Annotated[
        str | None,
        typer.Option(help="p99=50ms: what to ship under it, not the campaign's."),
    ] = None,
    like: Annotated[
        str | None, typer.Option(help="`published`: sections in each model's published form.")
    ] = None,
) -> None:
    """Write a campaign's report anew, and print it; with --partial at any time, also while it runs."""
    from rich.markdown import Markdown

    from flows.campaigns import unreached
    from tasks.core.results import campaign_folder
    from tasks.core.slo import from_option
    from tasks.report import write, write_like_published

    folder = campaign_folder(default_site().results, campaign)
    left = [f"{cell} on {profile}" for cell, profile in unreached(folder)]
    if left and not partial:
        raise UserError(
            f"campaign {campaign}: {len(left)} cells have not run: {', '.join(left[:3])}"
            f"{', ...' if len(left) > 3 else ''}; "
            f"`servegrid report {campaign} --partial` reports what there is, "
            f"`servegrid sweep --resume {campaign}` goes on with it"
        )
    if like is not None:
        if like != "published":
            raise unknown("form", like, ["published"])
        console.print(f"sections: {write_like_published(folder)}", soft_wrap=True, highlight=False)
        return
    console.print(Markdown(write(folder, from_option(slo) if slo else None)))
    if left:
        console.print(f"partial: {len(left)} cells have not run", highlight=False)
    console.print(f"report: {folder / 'report.html'}", soft_wrap=True, highlight=False)


def pack(
    cell: Annotated[str, typer.Argument(help="A cell's name, as the report prints it.")],
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    campaign: Annotated[
        str | None, typer.Option(help="A folder below results/; the latest with the cell.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Where the campaign has the cell on several profiles.")
    ] = None,
) -> None:
    """Hand a cell over: model repository, client, sample, accuracy certificate, report and versions.

    Of a cell that ended as an error: what the failed step read, its log, and a script that repeats it.
    """
    from tasks.core.results import campaign_folder
    from tasks.pack import latest
    from tasks.pack import pack as make_pack

    site = default_site()
    source = campaign_folder(site.results, campaign) if campaign else latest(site, cell, profile)
    row = make_pack(source, cell, folder.absolute(), site, profile)
    what = f"the failure of {cell}" if row["verdict"] == "error" else cell
    console.print(f"{what} of {source.name}: {folder}", soft_wrap=True, markup=False, highlight=False)


def history(
    cell: Annotated[str | None, typer.Argument(help="A cell's name; without it, every cell.")] = None,
) -> None:
    """Show what moved beyond noise from campaign to campaign, and what changed with it."""
    from tasks.reporting.history import moves

    found = moves(default_site().results, cell)
    wide = (Column(name, overflow="fold") for name in ("cell", "moved"))
    table = Table(*wide, "from", "to", "by", "in campaign", "changed too")
    for move in found:
        where = f"{move.cell} on {move.profile}"
        table.add_row(where, move.what, move.before, move.after, move.by, move.campaigns[1], move.with_it)
    console.print(table if found else "nothing moved beyond noise")
