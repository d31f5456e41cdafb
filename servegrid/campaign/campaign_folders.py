"""Which campaigns there are below `results/`."""

from __future__ import annotations

from pathlib import Path

from servegrid.campaign.layout import ROWS
from servegrid.domain.errors import UserError, unknown


def newest_first(results: Path, file: str = ROWS) -> list[Path]:
    """The folders of campaigns that have the file; the one whose file was written last comes first."""
    written = ((path.stat().st_mtime_ns, path.parent.name, path.parent) for path in results.glob(f"*/{file}"))
    return [folder for *_, folder in sorted(written, reverse=True)]


def newest(results: Path) -> Path:
    """The campaign that wrote the last row.

    Raises:
        UserError: there is none.
    """
    folders = newest_first(results)
    if not folders:
        raise no_campaign(results)
    return folders[0]


def no_campaign(results: Path) -> UserError:
    """The error where a campaign is needed and there is none at all."""
    return UserError(f"{results}: no campaign there; `servegrid sweep` makes one")


def unknown_campaign(missing: Path) -> UserError:
    """The error for a campaign that lacks this file, with the nearest names and the newest campaigns."""
    folder = missing.parent
    known = [path.name for path in newest_first(folder.parent, missing.name)]
    return unknown(f"campaign (in {folder.parent})", folder.name, known, in_order=True)
