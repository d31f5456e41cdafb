"""The models of a sweep's options: folders of models/, another folder, or a model file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from servegrid.domain.errors import UserError
from servegrid.domain.plugins import Plugin
from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import ModelFile, Scalar
from servegrid.domain.yaml_files import explain, parse_yaml
from servegrid.host.files import digest_path, is_path
from servegrid.plan.models import known_models, load_folder, load_model
from servegrid.plan.options import ALL, SweepOptions
from servegrid.plan.settings import with_settings
from servegrid.plan.spec_rules import RULES
from servegrid.sources.hugging_face import hugging_face_folder
from servegrid.sources.metric import with_metric
from servegrid.sources.model_file import model_folder
from servegrid.store.site import Site


def choose_plugins(options: SweepOptions, site: Site) -> list[Plugin]:
    """The plug-ins, with the parameters and import paths of the options.

    Raises:
        UserError: a name is unknown, or a file or folder is missing or wrong.
    """
    options = options.anywhere()  # a parameter's path is in cache keys: a file must have one path
    if options.model_file:
        kind, path = options.model_file
        if kind == "hf":
            found = [hugging_face_folder(Path(path), options, site)]
        else:
            found = [model_folder(kind, Path(path), options, site)]
    elif options.model_dir:
        found = [load_folder(Path(options.model_dir))]
    else:
        names = known_models(site.models) if options.models == (ALL,) else dict.fromkeys(options.models)
        found = [load_model(site.models, name) for name in names]
    paths = tuple(Path(path) for path in options.plugin_paths)
    for folder in paths:
        if not folder.is_dir():
            raise UserError(f"--plugin-path {folder}: no such folder")
    parameters = dict(_parameter(text) for text in options.params)
    files = {
        name: digest_path(Path(value))
        for name, value in parameters.items()
        if isinstance(value, str) and is_path(value)
    }
    chosen = []
    for plugin in found:
        variant = choose_variant(options, plugin.spec)
        spec, settings = with_settings(
            _with_parameters(plugin.spec, variant, parameters), variant, options.sets
        )
        own = {"model_digest": _model_digest(plugin), "settings": settings}
        plugin = plugin.model_copy(update={"spec": spec, "paths": paths, "files": files, **own})
        chosen.append(with_metric(plugin, options, variant))
    return chosen


def choose_variant(options: SweepOptions, spec: ModelSpec) -> str:
    """The variant of the options; if they name none, the only one of a model with a single variant."""
    only = len(spec.variants) == 1 and "variant" not in options.model_fields_set
    return next(iter(spec.variants)) if only else options.variant


def _model_digest(plugin: Plugin) -> str | None:
    """The digest of the model's file, or of a Hugging Face checkpoint, in a folder that is made of one."""
    checkpoint = plugin.folder / "data" / "checkpoint"
    if (checkpoint / "config.json").is_file():
        return digest_path(checkpoint)
    if plugin.spec.framework not in get_args(ModelFile):
        return None
    files = sorted((plugin.folder / "data").glob("model.*"))
    if len(files) != 1:
        raise UserError(f"{plugin.folder / 'data'}: expected one file model.*, found {len(files)}")
    return digest_path(files[0])


def _parameter(text: str) -> tuple[str, Scalar]:
    """`NAME=VALUE`: an argument's name and a YAML scalar."""
    name, equals, value = text.partition("=")
    try:
        read = parse_yaml(value)
    except ValueError:
        read = value
    infinite = isinstance(read, float) and not math.isfinite(read)  # JSON cannot hold it
    if not name.isidentifier() or not equals or not isinstance(read, bool | int | float | str) or infinite:
        raise UserError(f"--param {text}: expected NAME=VALUE, with a number, true, false or a text as value")
    return name, read


def _with_parameters(spec: ModelSpec, variant: str, parameters: dict[str, Scalar]) -> ModelSpec:
    """The spec with these parameters in a variant; the plan reports an unknown variant."""
    if not parameters or variant not in spec.variants:
        return spec
    data = spec.model_dump()
    data["variants"][variant]["parameters"] |= parameters
    try:
        return ModelSpec.model_validate(data, context=RULES)
    except ValidationError as error:
        raise UserError(f"--param: {explain(error, ModelSpec)}") from error
