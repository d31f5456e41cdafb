"""Turns a model file without Python code into a model folder, which later stages treat like any other.

The folder is an artifact of the store, so each file is read once.
"""

from __future__ import annotations

import logging
import re
import tempfile
from pathlib import Path

from servegrid.domain.errors import StepError, UnsupportedError, UserError
from servegrid.domain.names import LONGEST_NAME
from servegrid.domain.plugins import Plugin
from servegrid.domain.values import ModelFile
from servegrid.frameworks.estimators import REASON, is_estimator_folder
from servegrid.frameworks.fields import ModelFileFields
from servegrid.frameworks.file_plugin import COPIED, PROTOBUF_LIMIT, TEMPLATE
from servegrid.frameworks.networks import FRAMEWORKS
from servegrid.frameworks.steps import code
from servegrid.host.environment import how_to_install, missing, versions
from servegrid.host.files import digest_path
from servegrid.plan.options import SweepOptions
from servegrid.plan.spec_rules import load_spec
from servegrid.sources.file_kinds import why_not
from servegrid.store.build import Workplace, run_step
from servegrid.store.site import Site
from servegrid.store.store import BuildRequest

TIMEOUT_S = 1800.0


LIBRARIES: dict[ModelFile, tuple[str, ...]] = {
    "onnx": ("onnx", "onnxruntime"),
    "torchscript": ("torch",),
    "torch_export": ("torch",),
    "savedmodel": ("tensorflow", "keras"),
    "keras": ("tensorflow", "keras"),
}
"""Distributions that are needed to read and run the file."""


def model_folder(kind: ModelFile, path: Path, options: SweepOptions, site: Site) -> Plugin:
    """The plug-in for a model file; its spec follows from the file's inputs and outputs, and from the options
    about them.

    Raises:
        UserError: the file, a shape or the samples cannot be used; nothing is kept.
    """
    flag = f"--{kind.replace('_', '-')} {path}"
    _check_kind(kind, path, flag)
    files = {"file": path.absolute()}
    if options.samples is not None:
        files["samples"] = Path(options.samples).absolute()
        if not files["samples"].is_file():
            raise UserError(f"--samples {options.samples}: no such file")
    check_installed(LIBRARIES[kind], flag)
    fields = ModelFileFields(
        kind=kind,
        name=options.name or model_name(path, options.signature),
        shapes=dict(_shape(text) for text in options.shapes),
        parameters={"signature": options.signature} if options.signature else {},
        requires=LIBRARIES[kind],
    )
    request = BuildRequest(
        stage="read_model_file",
        code=code("read_model_file", FRAMEWORKS[kind], *COPIED),
        fields=fields,
        sources={name: digest_path(place) for name, place in files.items()} | _external(kind, path),
        libraries=versions(LIBRARIES[kind]),
    )

    return make_folder(request, fields.name, files, flag, TEMPLATE, site)


def make_folder(
    request: BuildRequest, name: str, files: dict[str, Path], flag: str, template: Path, site: Site
) -> Plugin:
    """The plug-in in the folder that a step makes of the user's files.

    Raises:
        UserError: the step could not use them; nothing is kept.
    """

    def read(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as logs:
            at = Workplace(
                site=site,
                plugin=template,
                logs=Path(logs),
                profile="cpu",
                cell=name,
                timeout_s=TIMEOUT_S,
            )
            try:
                run_step(
                    request.stage,
                    fields=request.fields,
                    inputs={},
                    output=folder,
                    at=at,
                    files=files,
                    level=logging.DEBUG,
                )
            except UnsupportedError as error:
                raise UserError(f"{flag}: {error}") from error
            except StepError as error:
                raise UserError(f"{flag}: it could not be read: {error}") from error

    folder = site.store.path(site.store.build(request, read))
    return Plugin(spec=load_spec(folder / "model.yaml"), folder=folder)


def check_installed(libraries: tuple[str, ...], flag: str) -> None:
    """Raises UserError, with the command that installs them, where distributions are missing."""
    absent = missing(libraries)
    if absent:
        raise UserError(
            f"{flag}: not installed: {', '.join(absent)}; in the checkout run `{how_to_install(absent)}`"
        )


def _check_kind(kind: ModelFile, path: Path, flag: str) -> None:
    if not path.exists():
        raise UserError(f"{flag}: no such file or folder")
    if kind == "onnx" and path.stat().st_size > PROTOBUF_LIMIT:
        raise UserError(f"{flag}: over 2 GB, which no ONNX file can be; keep its weights as external data")
    if path.is_dir() and kind != "savedmodel":
        raise UserError(f"{flag}: a folder; give the model's file")
    if kind == "savedmodel":
        _check_savedmodel(path, flag)
    elif reason := why_not(kind, path):
        raise UserError(f"{flag}: {reason}")


def _check_savedmodel(path: Path, flag: str) -> None:
    if (path / "saved_model.pb").is_file():
        return
    if is_estimator_folder(path):
        raise UserError(f"{flag}: {REASON}")
    found = sorted(place.parent for place in path.glob("*/saved_model.pb")) if path.is_dir() else []
    hint = f"; {found[0]} is one" if found else ""
    raise UserError(f"{flag}: not a SavedModel: that is a folder with a saved_model.pb in it{hint}")


def _external(kind: ModelFile, path: Path) -> dict[str, str]:
    """Digests of an ONNX file's external data: files in its folder whose names it contains."""
    if kind != "onnx":
        return {}
    content = path.read_bytes()
    siblings = sorted(p for p in path.absolute().parent.iterdir() if p.is_file() and p.name != path.name)
    return {f"beside/{p.name}": digest_path(p) for p in siblings if p.name.encode() in content}


def model_name(path: Path, signature: str | None = None) -> str:
    """The model's name: the file's, and the signature if one is given, reduced to valid characters."""
    stem = path.absolute().name.removesuffix(path.suffix) + (f"_{signature}" if signature else "")
    return re.sub(r"\W+", "_", stem, flags=re.ASCII)[:LONGEST_NAME] or "model"


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    """`NAME=1,3,224,224`."""
    name, equals, axes = text.rpartition("=")
    if not name or not equals or not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", axes):
        raise UserError(f"--shape {text}: expected NAME=1,3,224,224: whole numbers from 1, the batch first")
    return name, tuple(int(axis) for axis in axes.split(","))
