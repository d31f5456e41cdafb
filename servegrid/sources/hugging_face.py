"""Turns a local Hugging Face folder into a model folder; nothing in it is unpickled or run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, ValidationError

from servegrid.domain.errors import UserError, unknown
from servegrid.domain.plugins import Plugin
from servegrid.domain.values import Value
from servegrid.domain.yaml_files import explain
from servegrid.frameworks import file_plugin, hugging_face_plugin
from servegrid.frameworks.fields import HuggingFaceFields, Pooling
from servegrid.frameworks.hugging_face_folder.tasks import SENTENCE, TASKS, task_of
from servegrid.frameworks.steps import code
from servegrid.host.environment import versions
from servegrid.host.files import digest_path
from servegrid.plan.options import SweepOptions
from servegrid.sources.model_file import check_installed, make_folder, model_name
from servegrid.store.site import Site
from servegrid.store.store import BuildRequest

CONFIG, MODULES, PREPROCESSOR = "config.json", "modules.json", "preprocessor_config.json"
WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
UNPICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
NOT_PROCESSOR = ("*.index.json", "README.md", "requirements.txt")
PROCESSOR = ("*.json", "*.txt", "*.model", "*.jinja")
LIBRARIES = ("numpy", "safetensors", "tokenizers", "torch", "transformers")
POOLINGS: dict[str, Pooling] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}


class Config(Value):
    """The fields of config.json that decide how the folder is loaded."""

    model_config = ConfigDict(extra="ignore")

    model_type: str
    architectures: tuple[str, ...] = ()
    auto_map: dict[str, Any] = Field({})


class Module(Value):
    """An entry of sentence-transformers' modules.json."""

    model_config = ConfigDict(extra="ignore")

    type: str
    path: str


def hugging_face_folder(path: Path, options: SweepOptions, site: Site) -> Plugin:
    """The plug-in for a Hugging Face folder, served for a task: by default that of its architecture.

    Raises:
        UserError: the folder, the task or the samples cannot be used; nothing is kept.
    """
    flag = f"--hf {path}"
    fields = read_fields(path, options.task, options.name)
    check_installed(fields.requires, flag)
    files = {"file": path.absolute()}
    sources = {f"hf/{name}": digest_path(path / name) for name in {*fields.checkpoint, *fields.processor}}
    if options.samples is not None:
        files["samples"] = Path(options.samples).absolute()
        if not files["samples"].exists():
            raise UserError(f"--samples {options.samples}: no such file or folder")
        sources["samples"] = digest_path(files["samples"])
    plugin = hugging_face_plugin.__name__
    request = BuildRequest(
        stage="read_hugging_face",
        code=code(
            "read_hugging_face",
            f"{file_plugin.__name__}.dataloader",
            *(f"{plugin}.{name.removesuffix('.py')}" for name in hugging_face_plugin.FILES),
        ),
        fields=fields,
        sources=sources,
        libraries=versions(fields.requires),
    )
    return make_folder(request, fields.name, files, flag, hugging_face_plugin.TEMPLATE, site)


def read_fields(path: Path, task: str | None, name: str | None = None) -> HuggingFaceFields:
    """What the folder's own files say of the model; by default it has the folder's name.

    Raises:
        UserError: the folder or the task cannot be used.
    """
    flag = f"--hf {path}"
    config = _config(path, flag)
    modules = _modules(path, flag)
    task = _task(config, task, flag, pooled=bool(modules))
    pooling, normalize = _pooling(path, modules, flag) if task == SENTENCE else ("none", False)
    checkpoint, processor = (CONFIG, *_names(path, WEIGHTS)), _names(path, PROCESSOR)
    _check_weights(path, checkpoint, flag)
    images = PREPROCESSOR in processor and "image_processor_type" in _text(path, PREPROCESSOR)
    return HuggingFaceFields(
        name=name or model_name(path),
        task=task,
        auto_class=TASKS[task],
        pooling=pooling,
        normalize=normalize,
        checkpoint=checkpoint,
        processor=processor,
        requires=(*LIBRARIES, "pillow") if images else LIBRARIES,
    )


def _config(path: Path, flag: str) -> Config:
    if not path.is_dir():
        raise UserError(f"{flag}: no such folder")
    if not (path / CONFIG).is_file():
        raise UserError(f"{flag}: not a folder of transformers' save_pretrained: it has no {CONFIG}")
    try:
        config = Config.model_validate_json(_text(path, CONFIG))
    except ValidationError as error:
        raise UserError(f"{flag}: {CONFIG}: {explain(error, Config)}") from error
    if config.auto_map:
        raise UserError(
            f"{flag}: {CONFIG} names Python code of the folder (auto_map), and no such code is run; write a "
            "model folder for it (models/README.md)"
        )
    return config


def _task(config: Config, task: str | None, flag: str, *, pooled: bool) -> str:
    if task is not None and task not in TASKS:
        raise UserError(f"--task: {unknown('task', task, TASKS)}")
    if task is None and pooled:
        return SENTENCE
    found = task or task_of(config.architectures)
    if found is None:
        named = ", ".join(config.architectures) or "none"
        raise UserError(
            f"{flag}: its architecture ({named}) does not say what to serve; give --task {' or '.join(TASKS)}"
        )
    return found


def _modules(path: Path, flag: str) -> tuple[Module, ...]:
    """Those of a sentence-transformers model; none in other folders."""
    if not (path / MODULES).is_file():
        return ()
    try:
        return tuple(Module.model_validate(entry) for entry in json.loads(_text(path, MODULES)))
    except (ValidationError, ValueError, TypeError) as error:
        raise UserError(f"{flag}: {MODULES}: not a list of modules of sentence-transformers") from error


def _pooling(path: Path, modules: tuple[Module, ...], flag: str) -> tuple[Pooling, bool]:
    """How token states become one embedding, and whether it has length 1; without modules it is the mean."""
    kinds = [module.type.rpartition(".")[2] for module in modules]
    for kind in kinds:
        if kind not in ("Transformer", "Pooling", "Normalize"):
            raise UserError(
                f"{flag}: {MODULES}: module {kind} cannot be served; only Pooling and Normalize can"
            )
    pooling: Pooling = "mean"
    for module in modules:
        if module.type.endswith("Pooling"):
            name = f"{module.path}/{CONFIG}"
            modes = [key for key, value in json.loads(_text(path, name)).items() if value is True]
            known = [POOLINGS[mode] for mode in modes if mode in POOLINGS]
            others = [mode for mode in modes if mode.startswith("pooling_mode") and mode not in POOLINGS]
            if len(known) != 1 or others:
                raise UserError(
                    f"{flag}: {name}: it pools by {', '.join(modes)}; served is one of {', '.join(POOLINGS)}"
                )
            (pooling,) = known
    return pooling, "Normalize" in kinds


def _check_weights(path: Path, checkpoint: tuple[str, ...], flag: str) -> None:
    if any(name.endswith(".safetensors") for name in checkpoint):
        return
    pickled = _names(path, UNPICKLED)
    if pickled:
        raise UserError(
            f"{flag}: its weights are in {pickled[0]}, which could run code when it is read; save them as "
            "safetensors: `model.save_pretrained(FOLDER, safe_serialization=True)`"
        )
    raise UserError(f"{flag}: it has no weights (*.safetensors)")


def _names(path: Path, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The files at the top of the folder that have such names."""
    found = {entry.name for pattern in patterns for entry in path.glob(pattern) if entry.is_file()}
    if patterns == PROCESSOR:
        found -= {entry.name for pattern in NOT_PROCESSOR for entry in path.glob(pattern)}
    return tuple(sorted(found))


def _text(path: Path, name: str) -> str:
    try:
        return (path / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path / name}: cannot be read: {error}") from error
