"""What a campaign is asked for: one definition, from which the UI draws its form and the CLI its options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import Field, ValidationError

from tasks.core.errors import UserError
from tasks.core.matrix import Selection
from tasks.core.yaml_files import explain

ALL = "all"


class SweepOptions(Selection):
    """What to qualify."""

    models: tuple[str, ...] = Field(
        ("bert_large_qa",), min_length=1, description="Folders below models/; `all` is every one"
    )
    variant: str = Field("tiny", description="`full` is the published size, `tiny` runs on a laptop CPU")
    profile: str = Field("cpu", description="A file below gpu_profiles/")
    random_weights: bool = Field(
        False, description="Seeded random weights and inputs: needs no checkpoint; ends `measured`"
    )
    generator: Literal["auto", "perf_analyzer", "client"] = Field(
        "auto", description="`auto`: perf_analyzer where it runs, else the project's own client"
    )
    server: str = Field("embedded", description="How a Triton server is got")


def with_sweep_options(command: Callable[..., None], without: Sequence[str] = ()) -> Callable[..., None]:
    """A command of the CLI that takes every field of `SweepOptions` as an option of its own, but for those
    `without` which it does.

    A list is an option in the singular that may be repeated. What the command takes beside `options`
    stays as it is.
    """
    own = [
        parameter
        for name, parameter in inspect.signature(command, eval_str=True).parameters.items()
        if name != "options"
    ]

    @functools.wraps(command)
    def called(**given: Any) -> None:
        arguments = {parameter.name: given.pop(parameter.name) for parameter in own}
        try:
            options = SweepOptions.model_validate({k: v for k, v in given.items() if v not in (None, [])})
        except ValidationError as error:
            raise UserError(explain(error, SweepOptions)) from error
        command(options=options, **arguments)

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(name))
        for name in sorted(SweepOptions.model_fields, key=lambda name: name in Selection.model_fields)
        if name not in without
    ]
    called.__signature__ = inspect.Signature([*own, *parameters])  # type: ignore[attr-defined]  # what Typer reads
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *parameters)}
    return called


def _option(name: str) -> Any:
    """The field as Typer wants an option: its type, name, help and what it is where it is not given."""
    field = SweepOptions.model_fields[name]
    repeated = get_origin(field.annotation) is tuple
    kind: Any = list[str] if repeated else field.annotation
    if get_origin(kind) is Literal:
        kind = str  # it is SweepOptions that says what is wrong, with the nearest name
    elif type(None) in get_args(kind):
        kind = next(t for t in get_args(kind) if t is not type(None))
    flag = "--" + (name.removesuffix("s") if repeated else name).replace("_", "-")
    default = field.default if not repeated else ", ".join(field.default)
    option = typer.Option(flag, help=field.description, show_default=str(default) if default else False)
    return Annotated[kind | None, option]
