"""The options of a campaign that its stages and reports need, read from its `campaign.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from servegrid.campaign.layout import CampaignLayout
from servegrid.domain.errors import UserError
from servegrid.domain.slo import Slo, parse


def campaign_options(folder: Path) -> dict[str, Any]:
    """The options that a campaign was given; of a folder without a `campaign.json`, none.

    Raises:
        UserError: it is damaged.
    """
    path = CampaignLayout(folder=folder).options
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["options"]) if path.exists() else {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from error


def damaged(path: Path, why: object) -> UserError:
    """The error for a `campaign.json` that holds no options."""
    return UserError(f"{path}: cannot be read as the options of a campaign: {why}")


def objective(folder: Path) -> Slo | None:
    """The service-level objective of a campaign, if it has one.

    Raises:
        UserError: `campaign.json` is damaged.
    """
    slo = campaign_options(folder).get("slo")
    try:
        return parse(str(slo)) if slo else None
    except ValueError as error:
        raise UserError(f"{CampaignLayout(folder=folder).options}: slo {slo!r}: {error}") from error
