"""The Triton server of a campaign, and the campaign's cells adapted to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from servegrid.domain.errors import UserError, unknown
from servegrid.domain.profile import GpuProfile
from servegrid.domain.server import SERVER_OPTIONS, ServerCapabilities, ServerChoice, ServerOptions
from servegrid.domain.values import Cell, Excluded
from servegrid.domain.yaml_files import explain
from servegrid.plan.matrix import Plan
from servegrid.plan.options import SweepOptions


def choose_server(
    options: SweepOptions, profile: GpuProfile, providers: Mapping[str, ServerOptions]
) -> ServerChoice:
    """The server that the options name, else the profile's, else the embedded one.

    Raises:
        UserError: the provider is unknown, needs another option, or does not take one of them.
    """
    given = {
        field: value
        for option, field in SERVER_OPTIONS.items()
        if (value := getattr(options, option)) is not None
    }
    of_profile = profile.server if options.server is None else None
    where = f"gpu_profiles/{profile.name}.yaml, server" if of_profile else "--server"
    chosen = of_profile.model_dump(exclude_unset=True) if of_profile else {}
    if options.server:
        chosen["name"] = options.server
    try:
        choice = ServerChoice.model_validate(chosen | given | {"device_kind": profile.device_kind})
    except ValidationError as error:
        raise UserError(f"{where}: {explain(error, ServerChoice)}") from error
    if choice.name not in providers:
        raise unknown("server", choice.name, providers)
    own = providers[choice.name]
    for option in own.needs:
        if option not in choice.options:
            raise UserError(f"{where}: {choice.name} needs {option}: give --{option.replace('_', '-')}")
    for option in choice.options:
        if option not in own.takes:
            takers = " or ".join(name for name, other in providers.items() if option in other.takes)
            raise UserError(f"{where}: {choice.name} does not take {option}, which goes with {takers}")
    return choice


def of_cell(choice: ServerChoice, cell: Cell) -> ServerChoice:
    """The server for one cell: of the cell's release. (A provider of a single release ignores it.)"""
    return choice.model_copy(update={"triton_release": cell.product.triton_release})


def own_server(choice: ServerChoice, cell: Cell) -> ServerChoice:
    """The server for one cell of `tune` or `compare`, which start it themselves.

    Raises:
        UserError: the server runs already, and has other clients.
    """
    if choice.runs_already:
        raise UserError(
            f"gpu_profiles/{cell.profile}.yaml, server: {choice.url} runs already; only `servegrid sweep` "
            "attaches to a server; give --profile with one whose server is embedded or docker"
        )
    return of_cell(choice, cell)


def adapt_to_server(plan: Plan, choice: ServerChoice, capabilities: ServerCapabilities) -> Plan:
    """The plan as the chosen server can run it: with shared memory only if the server can open it.

    A server that loads no models on request runs what it has loaded, and does not tell which cell that is:
    only a plan of a single cell can mean it, and both scenarios are measured on the one serving.

    Raises:
        UserError: a cell needs a protocol that the server's clients cannot use.
    """
    cells = list(plan.cells)
    for cell in cells:
        if cell.online.protocol not in capabilities.protocols:
            usable = " or ".join(capabilities.protocols)
            raise UserError(
                f"{cell.name}: {choice.url or choice.name} takes no protocol {cell.online.protocol} "
                f"(--protocol, or serving.protocol in model.yaml): give --protocol {usable}"
            )
    if not capabilities.shared_memory:
        cells = [_with(cell, ("offline", "online"), shared_memory="none") for cell in cells]
    if capabilities.loads:
        return Plan(cells=tuple(cells), excluded=plan.excluded)
    fixed, excluded = [], list(plan.excluded)
    for cell in cells:
        reason = None
        if cell.product.model not in capabilities.loaded:
            reason = f"{choice.url} loads no models on request, and has no {cell.product.model} loaded"
        elif len(cells) > 1:
            reason = (
                f"{choice.url} loads no models on request: name the one cell that its {cell.product.model} "
                "is, by --format, --precision, --accelerator and --instances"
            )
        if reason:
            excluded.append(Excluded(cell=cell, reason=reason))
        else:
            fixed.append(cell.model_copy(update={"static": cell.dynamic}))
    return Plan(cells=tuple(fixed), excluded=tuple(excluded))


def _with(cell: Cell, parts: tuple[str, ...], **fields: Any) -> Cell:
    """The cell with other values of these fields in some of its parts."""
    changed = {part: getattr(cell, part).model_copy(update=fields) for part in parts}
    return cell.model_copy(update=changed)
