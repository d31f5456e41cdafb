"""What pip is to install into an image, so that what its base brings stays as it is.

    python3 image_requirements.py pyproject.toml constraints.txt --extras torch,onnx --output DIR

Writes DIR/requirements.txt, what the project and the wanted extras require, and DIR/constraints.txt. A
framework that the base has is pinned to the base's version and required no more, under whichever name it is
distributed; of other packages that the base has, the project's pin is left out: pip then replaces only those
that are too old. It runs in the base's own interpreter, before anything is installed: standard library only.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

FRAMEWORKS: dict[str, tuple[str, ...]] = {
    "torch": ("torch",),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-gpu"),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
    "tensorrt": ("tensorrt", "tensorrt-cu12", "tensorrt-cu13"),
}
"""Package -> the distributions that bring it: with one of them there, another would overwrite it."""


def normal(requirement: str) -> str:
    """The distribution's name in a requirement or a pin, in the form that is compared (PEP 503)."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement.strip())
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def installed(paths: list[str]) -> dict[str, str]:
    """Versions of what lies in these folders, by name."""
    return {normal(d.metadata["Name"]): d.version for d in metadata.distributions(path=paths)}


def split(
    requirements: Iterable[str], constraints: Iterable[str], base: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """The requirements and the constraints for a base that has these distributions."""
    brought = {name: base[name] for names in FRAMEWORKS.values() for name in names if name in base}
    closed = {name for names in FRAMEWORKS.values() if brought.keys() & names for name in names}
    wanted = [line for line in requirements if normal(line) not in closed]
    pins = [line for line in constraints if normal(line) not in closed | base.keys()]
    return wanted, [*pins, *(f"{name}=={version}" for name, version in sorted(brought.items()))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pyproject", type=Path)
    parser.add_argument("constraints", type=Path)
    parser.add_argument("--extras", default="", help="extras of the project, with commas")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    project = tomllib.loads(arguments.pyproject.read_text(encoding="utf-8"))["project"]
    extras, known = [e for e in arguments.extras.split(",") if e], project["optional-dependencies"]
    for extra in extras:
        if extra not in known:
            sys.exit(f"unknown extra {extra!r}; pyproject.toml has {', '.join(sorted(known))}")
    requirements = [*project["dependencies"], *(line for extra in extras for line in known[extra])]
    pins = arguments.constraints.read_text(encoding="utf-8").split()
    wanted, constraints = split(requirements, pins, installed(sys.path))
    (arguments.output / "requirements.txt").write_text("\n".join(wanted) + "\n", encoding="utf-8")
    (arguments.output / "constraints.txt").write_text("\n".join(constraints) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
