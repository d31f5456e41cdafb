"""Model folders and profiles, and the files that each entry file reads."""

from __future__ import annotations

import ast
import hashlib
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
    files: digests of the files and folders that parameters of the command line name.
    """

    spec: ModelSpec
    folder: Path
    paths: tuple[Path, ...] = ()
    files: dict[str, str] = Field({})

    @property
    def prepares(self) -> bool:
        """Whether the folder has a prepare.py."""
        return (self.folder / "prepare.py").is_file()

    def sources(self, entry: str, *, with_data: bool = False) -> dict[str, str]:
        """Digests of all source files and data that a step reads when it runs `entry`. A folder made from a
        model file has no model.py: its network is a prepared file."""
        found: dict[str, str] = {}
        if (self.folder / entry).is_file():
            found = source_digests(self.folder, entry, *self.paths, with_data=with_data)
        return found | {f"--param {name}": digest for name, digest in self.files.items()}


def load_profile(profiles_dir: Path, name: str) -> GpuProfile:
    """The profile `profiles_dir/name.yaml`.

    Raises:
        UserError: no such profile (with the nearest names), or the file is wrong.
    """
    known = [p.stem for p in profiles_dir.glob("*.yaml")]
    if name not in known:
        raise unknown(f"GPU profile (in {profiles_dir})", name, known)
    return load_yaml(profiles_dir / f"{name}.yaml", GpuProfile)


def source_digests(folder: Path, entry: str, *paths: Path, with_data: bool = False) -> dict[str, str]:
    """SHA-256 of `entry` and of every module that it imports, directly or not, from its folder or `paths`.

    In a stage's key they cause a rebuild when the code of the stage changes, and not when another file of
    the folder does. `with_data` adds the files below `data/` except Markdown. A module of `paths` is listed
    by its absolute path.
    """
    found: dict[str, str] = {}
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        text = (folder / name).read_bytes()
        found[name] = hashlib.sha256(text).hexdigest()
        for module in _imports(text):
            waiting += _files(folder, module) or [
                str(path / name) for path in paths for name in _files(path, module)
            ]
    if with_data:
        for path in sorted((folder / "data").rglob("*")):
            if path.is_file() and path.suffix != ".md":
                name = path.relative_to(folder).as_posix()
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return dict(sorted(found.items()))


def _files(folder: Path, module: str) -> list[str]:
    """The files of a sibling module or package; none if the module is not in the folder."""
    paths = [folder / f"{module}.py"] if (folder / f"{module}.py").is_file() else []
    paths += (folder / module).rglob("*.py")
    return [path.relative_to(folder).as_posix() for path in paths]


def _imports(source: bytes) -> set[str]:
    """Top-level names that a module imports; none if the file does not parse.

    (The child process that runs the file reports its syntax error with a traceback.)
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names
