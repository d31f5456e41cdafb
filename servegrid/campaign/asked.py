"""What a campaign was asked for, as far as its stages and reports need it: from its `campaign.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from servegrid.domain.errors import UserError
from servegrid.domain.slo import Slo, parse


def asked(folder: Path) -> dict[str, Any]:
    """The options that a campaign was given; of a folder without a `campaign.json`, none.

    Raises:
        UserError: it is damaged.
    """
    path = folder / "campaign.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["options"]) if path.exists() else {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from error


def damaged(path: Path, why: object) -> UserError:
    """That a `campaign.json` does not say what a campaign was asked for."""
    return UserError(f"{path}: cannot be read as the options of a campaign: {why}")


def ground(folder: Path, profile: str) -> Path:
    """Where a profile's logs, predictions and repositories lie: apart from others', whose names are equal."""
    return folder / profile if len(asked(folder).get("profiles", ())) > 1 else folder


def objective(folder: Path) -> Slo | None:
    """The service-level objective of a campaign, if it has one.

    Raises:
        UserError: `campaign.json` is damaged.
    """
    slo = asked(folder).get("slo")
    try:
        return parse(str(slo)) if slo else None
    except ValueError as error:
        raise UserError(f"{folder / 'campaign.json'}: slo {slo!r}: {error}") from error
