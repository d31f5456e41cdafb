"""A model's folder, and the profiles of a folder."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from servegrid.domain.errors import unknown
from servegrid.domain.profile import GpuProfile
from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import Value
from servegrid.domain.yaml_files import load_yaml


class Plugin(Value):
    """A model folder and its spec.

    paths: other folders from which its Python files import;
    files: digests of the files and folders that parameters of the command line name;
    model_digest: SHA-256 of the model's file, if the folder is made of one;
    settings: the fields of the spec that `--set` changed, as KEY=JSON.
    """

    spec: ModelSpec
    folder: Path
    paths: tuple[Path, ...] = ()
    files: dict[str, str] = Field({})
    model_digest: str | None = None
    settings: tuple[str, ...] = ()

    @property
    def prepares(self) -> bool:
        """Whether the folder has a prepare.py."""
        return (self.folder / "prepare.py").is_file()


def load_profile(profiles_dir: Path, name: str) -> GpuProfile:
    """The profile `profiles_dir/name.yaml`.

    Raises:
        UserError: no such profile (with the nearest names), or the file is wrong.
    """
    known = [p.stem for p in profiles_dir.glob("*.yaml")]
    if name not in known:
        raise unknown(f"GPU profile (in {profiles_dir})", name, known)
    return load_yaml(profiles_dir / f"{name}.yaml", GpuProfile)
