"""Reads model folders, in models/ or elsewhere."""

from __future__ import annotations

from pathlib import Path

from servegrid.domain.errors import UserError, unknown
from servegrid.domain.plugins import Plugin
from servegrid.plan.spec_rules import load_spec


def known_models(models_dir: Path) -> list[str]:
    """The names of the model folders; a folder whose name begins with `_` is not a model."""
    return sorted(path.parent.name for path in models_dir.glob("[!_]*/model.yaml"))


def load_model(models_dir: Path, name: str) -> Plugin:
    """The plug-in `models_dir/name`.

    Raises:
        UserError: no such model (with the nearest names), or its model.yaml is wrong.
    """
    known = known_models(models_dir)
    if name not in known:
        raise unknown(f"model (in {models_dir})", name, known)
    folder = models_dir / name
    spec = load_spec(folder / "model.yaml")
    if spec.name != name:
        raise UserError(
            f"{folder / 'model.yaml'}: name: expected {name!r}, the folder's name (found {spec.name!r})"
        )
    return Plugin(spec=spec, folder=folder)


def load_folder(folder: Path) -> Plugin:
    """The plug-in of any folder; its spec may have another name than the folder.

    Raises:
        UserError: no such folder, or its model.yaml is missing or wrong.
    """
    if not (folder / "model.yaml").is_file():
        raise UserError(f"--model-dir {folder}: has no model.yaml; models/README.md describes it")
    return Plugin(spec=load_spec(folder / "model.yaml"), folder=folder.absolute())
