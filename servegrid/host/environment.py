"""What this host is and runs: the facts that every row carries."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from servegrid.domain.profile import GpuProfile
from servegrid.domain.values import Value
from servegrid.host.cards import VISIBLE, card, card_name

ALTERNATIVES = {
    "tensorflow": ("tensorflow-cpu",),
    "onnxruntime": ("onnxruntime-gpu",),
    "tensorrt": (
        "tensorrt-cu13",
        "tensorrt-cu12",
        "tensorrt-rtx-cu13-bindings",
        "tensorrt-rtx-cu12-bindings",
    ),
}
"""A distribution -> others that bring the same package."""

EXTRAS = ("torch", "tensorflow", "onnx", "tensorrt-rtx")
"""The extras that bring frameworks to a CPU host (pyproject.toml)."""


class Host(Value):
    """One machine as a row names it; `gpu` is the card's name, or the CPU's where there is none, and
    `driver` the card's."""

    name: str
    cpu: str
    cores: int
    memory_gb: float
    gpu: str
    driver: str | None
    system: str
    python: str


def versions(distributions: Iterable[str]) -> dict[str, str]:
    """Installed version of each distribution; "absent" where it is not installed."""
    return {name: _version(name) for name in sorted(distributions)}


def provider(name: str) -> str | None:
    """The installed distribution that brings this one's package: itself, or one of its alternatives. Where
    several are installed, it is the one whose folder comes first on `sys.path`: Python imports that one."""
    names = (name, *ALTERNATIVES.get(name, ()))
    found = {distribution: at for distribution in names if (at := _installed(distribution))}
    return min(found, key=lambda distribution: found[distribution].place) if found else None


class _Installed(NamedTuple):
    version: str
    place: int
    """Of its folder on `sys.path`."""


def _version(name: str) -> str:
    distribution = provider(name)
    found = distribution and _installed(distribution)
    return found.version if found else "absent"


def _installed(distribution: str) -> _Installed | None:
    return _installed_on(tuple(sys.path), distribution)


@functools.cache
def _installed_on(path: tuple[str, ...], distribution: str) -> _Installed | None:
    """The distribution on this `sys.path`; cached, because every cell of a plan needs it and it reads
    files."""
    try:
        found = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    folder = str(found.locate_file(""))
    return _Installed(found.version, path.index(folder) if folder in path else len(path))


def extras(distributions: Iterable[str]) -> list[str]:
    """The project's extras that bring these distributions to a CPU host."""
    wanted = {alternative for d in distributions for alternative in (d, *ALTERNATIVES.get(d, ()))}
    requirements = [Requirement(text) for text in importlib.metadata.requires("servegrid") or ()]
    markers = [r.marker for r in requirements if r.marker and r.name in wanted]
    return [extra for extra in EXTRAS if any(marker.evaluate({"extra": extra}) for marker in markers)]


def how_to_install(distributions: Sequence[str]) -> str:
    """The command that brings them, in the checkout: by the project's extras where those do."""
    known = extras(distributions)
    return f"pip install -e '.[{','.join(known)}]'" if known else f"pip install {' '.join(distributions)}"


def missing(distributions: Iterable[str]) -> list[str]:
    """Those of the distributions that are not installed."""
    return [name for name, version in versions(distributions).items() if version == "absent"]


def host() -> Host:
    """This machine, with the card that this process uses now."""
    return _host(os.environ.get(VISIBLE))


@functools.cache
def _host(visible: str | None) -> Host:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cpu = _cpu_name()
    return Host(
        name=platform.node(),
        cpu=cpu,
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(memory / 2**30, 1),
        gpu=card_name() or cpu,
        driver=card().get("driver"),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
    )


def instruction_sets() -> list[str]:
    """The vector instruction sets of this CPU, on which what is compiled for it depends."""
    flags = {word for line in _cpu_info("flags") for word in line.split()}
    return sorted(flag for flag in flags if flag.startswith(("avx", "amx", "fma")))


def matches(profile: GpuProfile) -> bool:
    """Whether the device that this process uses is the one that the profile describes."""
    name = card_name()
    return profile.device_kind == "cpu" or (name is not None and describes(profile, name))


def describes(profile: GpuProfile, name: str) -> bool:
    """Whether a card of this name is one of the profile's: one of the profile's words is in it, whole."""
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", name) for word in profile.device_names)


def _cpu_name() -> str:
    return next(iter(_cpu_info("model name")), platform.machine())


def _cpu_info(key: str) -> list[str]:
    """The entry of each core."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return [
        value.strip() for name, _, value in (line.partition(":") for line in lines) if name.strip() == key
    ]
