"""The options of a campaign: one definition for the UI's form and the CLI's options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from servegrid.domain.errors import UserError
from servegrid.domain.names import LONGEST_NAME, check_text
from servegrid.host.files import is_path
from servegrid.plan.own_model import MODEL_FILES, OwnModel
from servegrid.plan.selection import Panel, Selection

ALL = "all"
QUEUE = "default"
PATHS = (
    *MODEL_FILES,
    "samples",
    "labels",
    "model_dir",
    "ca_file",
    "headers_file",
    "server_folder",
    "backend_directory",
)
"""Options that name one file or folder."""


class SweepOptions(OwnModel):
    """The models, devices, server and measurements of a campaign."""

    model_config = ConfigDict(allow_inf_nan=False)

    models: Annotated[tuple[str, ...], Panel.WHAT] = Field(
        ("bert_large_qa",), min_length=1, description="Folders below models/; `all` is every one"
    )
    variant: Annotated[str, Panel.WHAT] = Field(
        "tiny", description="`full` is the published size, `tiny` runs on a laptop CPU"
    )
    profiles: Annotated[tuple[str, ...], Panel.WHERE] = Field(
        ("cpu",), min_length=1, description="Files below gpu_profiles/: the devices to qualify on"
    )
    workers: Annotated[bool, Panel.WHERE] = Field(
        False, description="The cells of each profile on the workers of its pool, not in this process"
    )
    queue: Annotated[str, Panel.WHERE] = Field(
        QUEUE, description="The queue of the pools in which runs wait for their workers"
    )
    generator: Annotated[Literal["auto", "perf_analyzer", "client"], Panel.MEASURED] = Field(
        "auto", description="`auto`: perf_analyzer where it runs, else the project's own client"
    )
    server: Annotated[str | None, Panel.SERVER] = Field(
        None,
        description="How a Triton server is got: embedded, installed, docker or remote; by default as the "
        "profile says",
    )
    url: Annotated[str | None, Panel.SERVER] = Field(
        None, description="grpc://HOST:PORT or grpcs://HOST:PORT, with --server remote"
    )
    ca_file: Annotated[str | None, Panel.SERVER] = Field(
        None, description="PEM file of the authorities to trust, with a grpcs:// URL"
    )
    headers_file: Annotated[str | None, Panel.SERVER] = Field(
        None, description="A file of `name: value` lines: headers of every request, with --server remote"
    )
    triton_release: Annotated[str | None, Panel.SERVER] = Field(
        None,
        description="YY.MM: the image of --server docker; of another server whose version is not known",
    )
    server_folder: Annotated[str | None, Panel.SERVER] = Field(
        None,
        description="Where --server installed lies, with bin/ and backends/; by default /opt/tritonserver, "
        "or that of `tritonserver` on PATH",
    )
    backend_directory: Annotated[str | None, Panel.SERVER] = Field(
        None, description="A folder with more backends, for --server embedded or installed"
    )
    keep_inputs: Annotated[bool, Panel.MEASURED] = Field(
        False, description="Keep all samples with the predictions, so that anybody can compute a metric again"
    )
    params: Annotated[tuple[str, ...], Panel.WHAT] = Field(
        (), description="NAME=VALUE: a parameter of the model, or a new value"
    )
    sets: Annotated[tuple[str, ...], Panel.WHAT] = Field(
        (),
        description="KEY=VALUE: a field of model.yaml, as max_batch_size=32 or batch_sizes=1,8,32",
    )

    @field_validator("*")
    @classmethod
    def _texts(cls, given: Any, info: ValidationInfo) -> Any:
        for text in given if isinstance(given, tuple) else (given,):
            if isinstance(text, str):
                check_text(text, path=info.field_name not in ("params", "sets"))
        return given

    @model_validator(mode="after")
    def _one_model(self) -> SweepOptions:
        named = [name for name in (*MODEL_FILES, "model_dir") if getattr(self, name) is not None]
        if "models" in self.model_fields_set:
            named.insert(0, "model")
        if len(named) > 1:
            flags = " and ".join("--" + name.replace("_", "-") for name in named)
            raise ValueError(f"{flags}: give one of them")
        if self.queue != QUEUE and not self.workers:
            raise ValueError("--queue goes with --workers")
        return self

    @property
    def place(self) -> str:
        """The profiles, one or more, as names and tags of flow runs have them."""
        return ", ".join(self.profiles)

    @property
    def title(self) -> str:
        """The model's name in that of a flow run."""
        path = self.name or self.model_dir or (self.model_file or (None, None))[1]
        return Path(path).name[:LONGEST_NAME] if path else self.models[0]

    @property
    def subject(self) -> str:
        """The models of a campaign, in the name of its flow run."""
        if self.model_file:
            return self.title
        return f"{self.title if self.model_dir else ', '.join(self.models)} ({self.variant})"

    def on(self, profile: str) -> SweepOptions:
        """These options for one of its profiles."""
        return self.model_copy(update={"profiles": (profile,)})

    def only(self, model: str, profile: str) -> SweepOptions:
        """These options for one of its models on one of its profiles."""
        one = self.on(profile)
        return one if self.model_dir or self.model_file else one.model_copy(update={"models": (model,)})

    @property
    def words(self) -> tuple[str, ...]:
        """The command line of these options, without those about workers."""
        given = self.model_fields_set - {"workers", "queue"}
        return tuple(w for name in _fields() if name in given for w in _words(name, getattr(self, name)))

    def anywhere(self) -> SweepOptions:
        """These options with absolute paths, for a process in another folder. A parameter's value is a path
        if it has a slash and exists."""
        named = {name: getattr(self, name) for name in PATHS}
        whole: dict[str, Any] = {name: str(Path(path).absolute()) for name, path in named.items() if path}
        if self.plugin_paths:
            whole["plugin_paths"] = tuple(str(Path(path).absolute()) for path in self.plugin_paths)
        if self.params:
            whole["params"] = tuple(_with_whole_path(text) for text in self.params)
        return self.model_copy(update=whole)


def with_sweep_options(command: Callable[..., None], without: Sequence[str] = ()) -> Callable[..., None]:
    """A command of the CLI with an option for every field of `SweepOptions`, except those in `without`.

    A list is an option in the singular that may be repeated. The command's other parameters stay as they are.
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
            from servegrid.domain.yaml_files import explain

            raise UserError(explain(error, SweepOptions)) from error
        command(options=options, **arguments)

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(name))
        for name in _fields()
        if name not in without
    ]
    called.__signature__ = inspect.Signature([*own, *parameters])  # type: ignore[attr-defined]  # what Typer reads
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *parameters)}
    return called


def _fields() -> list[str]:
    """The fields in the order of their panels; in a panel those of this class come first."""
    order = list(Panel)
    own_first = sorted(SweepOptions.model_fields, key=lambda name: name in Selection.model_fields)
    return sorted(own_first, key=lambda name: order.index(panel(name)))


def panel(name: str) -> Panel:
    """The group of a field's option in `--help`."""
    (found,) = (entry for entry in SweepOptions.model_fields[name].metadata if isinstance(entry, Panel))
    return found


def _words(name: str, value: Any) -> tuple[str, ...]:
    """The command line of one field: a flag has no value; an option of a list is repeated, but for the list
    of an option that may be left out, which has commas."""
    if value is None or value is False:
        return ()
    if value is True:
        return (_flag(name),)
    if not isinstance(value, tuple):
        return (_flag(name), str(value))
    texts = tuple(map(str, value)) if _repeated(name) else (",".join(map(str, value)),)
    return tuple(word for text in texts for word in (_flag(name), text))


def _flag(name: str) -> str:
    """The flag of a field; a list's is in the singular."""
    return "--" + (name.removesuffix("s") if _repeated(name) else name).replace("_", "-")


def _repeated(name: str) -> bool:
    """Whether the field is a list with an option for each entry."""
    return get_origin(SweepOptions.model_fields[name].annotation) is tuple


def _with_whole_path(param: str) -> str:
    name, equals, value = param.partition("=")
    return f"{name}{equals}{Path(value).absolute()}" if is_path(value) else param


def _option(name: str) -> Any:
    """The field as an option of Typer: type, name, help and default."""
    field = SweepOptions.model_fields[name]
    repeated = _repeated(name)
    kind: Any = field.annotation
    if type(None) in get_args(kind):
        kind = next(t for t in get_args(kind) if t is not type(None))
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]  # SweepOptions checks its bounds
    if repeated:
        kind = list[str]
    elif kind not in (bool, int, float):
        kind = str  # SweepOptions parses the text, and its errors name the nearest value
    default = field.default if not repeated else ", ".join(field.default)
    shown = str(default) if default else False
    option = typer.Option(
        _flag(name), help=field.description, show_default=shown, rich_help_panel=panel(name).value
    )
    return Annotated[kind | None, option]
