"""Which Triton server a campaign uses, and its cells as that server can run them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import ValidationError

from servegrid.domain.errors import UserError, unknown
from servegrid.domain.profile import GpuProfile
from servegrid.domain.server import ServerCapabilities, ServerChoice
from servegrid.domain.values import Cell, Excluded
from servegrid.domain.yaml_files import explain
from servegrid.plan.matrix import Plan
from servegrid.plan.options import SweepOptions

OPTIONS = ("url", "ca_file", "headers_file", "triton_release")
"""Options that say more about a server, each of the same name in `ServerChoice`."""


def choose_server(options: SweepOptions, profile: GpuProfile, providers: Collection[str]) -> ServerChoice:
    """The server of the options where they name one, else the profile's, else the embedded one: by one of
    these providers.

    Raises:
        UserError: no such provider, or what it asks for is missing or wrong.
    """
    more = {name: value for name in OPTIONS if (value := getattr(options, name)) is not None}
    chosen = {} if options.server or not profile.server else profile.server.model_dump(exclude_unset=True)
    if options.server:
        chosen["name"] = options.server
    if chosen.get("name", "embedded") not in providers:
        raise unknown("server", chosen["name"], providers)
    try:
        return ServerChoice.model_validate(chosen | more | {"device_kind": profile.device_kind})
    except ValidationError as error:
        raise UserError(f"--server: {explain(error, ServerChoice)}") from error


def of_cell(choice: ServerChoice, cell: Cell) -> ServerChoice:
    """The server for one cell: of the release that it is planned for, where it can be chosen."""
    if choice.name == "embedded":
        return choice
    return choice.model_copy(update={"triton_release": cell.product.triton_release})


def own_server(choice: ServerChoice, cell: Cell) -> ServerChoice:
    """The same for `tune` and `compare`, which start a server of their own.

    Raises:
        UserError: it runs already, and serves others.
    """
    if choice.name == "remote":
        raise UserError(
            f"gpu_profiles/{cell.profile}.yaml, server: {choice.url} runs already; only `servegrid sweep` "
            "attaches to a server; give --profile with one whose server is embedded or docker"
        )
    return of_cell(choice, cell)


def adapt_to_server(plan: Plan, choice: ServerChoice, capabilities: ServerCapabilities) -> Plan:
    """The plan as the chosen server can run it: it may not share memory with us, and it may load no models
    on request.

    One that loads none has one model of a name, of which it does not say which cell it is: only a plan of a
    single cell can mean it, and both scenarios are measured on the one serving.

    Raises:
        UserError: cells want HTTP of a remote server, which is reached by gRPC only.
    """
    http = next((cell for cell in plan.cells if cell.online.protocol == "http"), None)
    if choice.name == "remote" and http:
        raise UserError(
            f"{http.name}: protocol http (--protocol, or serving.protocol in model.yaml): {choice.url} takes "
            "gRPC only: give --protocol grpc"
        )
    cells = list(plan.cells)
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
