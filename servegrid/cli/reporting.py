"""The commands `report`, `bundle` and `history` of `servegrid`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from servegrid.cli.table import print_markdown, print_table, say
from servegrid.domain.errors import UserError, unknown
from servegrid.store.site import default_site


def report(
    campaign: Annotated[
        str | None, typer.Argument(help="A folder below results/.  [default: the newest]")
    ] = None,
    partial: Annotated[
        bool, typer.Option(help="Report a campaign with cells that have not run yet.")
    ] = False,
    slo: Annotated[
        str | None,
        typer.Option(help="A latency objective, p99=50ms.  [default: the campaign's]"),
    ] = None,
    like: Annotated[
        str | None, typer.Option(help="`published`: the points in the form of NVIDIA's documents.")
    ] = None,
) -> None:
    """Write and print a campaign's report; with --partial also while the campaign runs."""
    from servegrid.campaign.campaign import unreached
    from servegrid.campaign.campaign_folders import newest
    from servegrid.campaign.layout import CampaignLayout
    from servegrid.campaign.results import campaign_folder
    from servegrid.domain.slo import from_option
    from servegrid.reporting.writing import write, write_like_published

    results = default_site().results
    folder = campaign_folder(results, campaign) if campaign is not None else newest(results)
    if campaign is None:
        campaign = folder.name
        say(f"campaign {campaign}, the newest of {results}")
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
        say(f"sections: {write_like_published(folder)}")
        return
    print_markdown(write(folder, from_option(slo) if slo else None))
    if left:
        say(f"partial: {len(left)} cells have not run")
    say(f"report: {CampaignLayout(folder=folder).report}")


def bundle(
    cell: Annotated[
        str | None,
        typer.Argument(help="A cell's name, as the report prints it.  [default: the recommended cell]"),
    ] = None,
    folder: Annotated[Path | None, typer.Argument(help="A new folder.  [default: ./CELL]")] = None,
    campaign: Annotated[
        str | None,
        typer.Option(help="A folder below results/.  [default: the newest where the cell passed]"),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="The profile of the cell, if it ran on several.")
    ] = None,
) -> None:
    """Bundle a cell: model repository, client, sample, accuracy certificate, report and versions.

    The bundle of an error holds what the failed step read, its log, and a script that repeats it.
    """
    from servegrid.bundle.bundle import bundle as make_bundle
    from servegrid.bundle.bundle import latest, recommended
    from servegrid.campaign.results import campaign_folder

    site = default_site()
    source = campaign_folder(site.results, campaign) if campaign is not None else None
    if cell is None:
        source, choice = recommended(site, source, profile)
        cell, profile = choice.cell, choice.profile
        say(f"campaign {source.name} recommends {cell} for {choice.objective}")
    source = source or latest(site, cell, profile)
    target = folder or Path(Path(cell).name)
    row = make_bundle(source, cell, target.absolute(), site, profile)
    weights = ", random weights" if row["random_weights"] else ""
    say(f"{cell} ({row['verdict']}{weights}) of campaign {source.name}: {target}")


def history(
    cell: Annotated[str | None, typer.Argument(help="A cell's name.  [default: every cell]")] = None,
) -> None:
    """Show which figures changed beyond noise between campaigns, and which settings changed with them."""
    from servegrid.reporting.history import moves

    found = moves(default_site().results, cell)
    if not found:
        say("nothing changed beyond noise")
        return
    rows = [(m.cell, m.profile, m.what, m.before, m.after, m.by, m.campaigns[1], m.with_it) for m in found]
    head = ("cell", "profile", "moved", "from", "to", "by", "in campaign", "changed too")
    print_table(head, rows)
