"""What this host is and runs: the facts that every row carries."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.metadata
import logging
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from servegrid.domain.profile import GpuProfile
from servegrid.domain.values import Value
from servegrid.host.stage_timer import work

log = logging.getLogger("servegrid")

LOCKS = Path("/tmp/servegrid-locks")  # noqa: S108
"""One place for every process of the host, wherever its TMPDIR points."""
CPU = "cpu"
"""The profile of a host's CPU, of which there is one."""


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
    """The installed distribution that brings this one's package: itself, or one of its alternatives."""
    names = (name, *ALTERNATIVES.get(name, ()))
    return next((distribution for distribution in names if _installed(distribution)), None)


def _version(name: str) -> str:
    distribution = provider(name)
    return (distribution and _installed(distribution)) or "absent"


def _installed(distribution: str) -> str | None:
    """Its version, if it is installed."""
    return _version_on(tuple(sys.path), distribution)


@functools.cache
def _version_on(path: tuple[str, ...], distribution: str) -> str | None:
    """The version on this `sys.path`; cached, because every cell of a plan needs it and it reads files."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


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


@functools.cache
def host() -> Host:
    """This machine."""
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


def gpu_names() -> tuple[str, ...]:
    """Names of the NVIDIA cards that NVML sees; empty without a driver."""
    with nvml() as pynvml:
        if pynvml is None:
            return ()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return tuple(str(pynvml.nvmlDeviceGetName(handle)) for handle in handles)


def card_name() -> str | None:
    """The name of the NVIDIA card that this process uses; None without one."""
    with nvml() as pynvml:
        return str(pynvml.nvmlDeviceGetName(used_card(pynvml))) if pynvml else None


def card() -> dict[str, str]:
    """Compute capability and driver of the NVIDIA card that this process uses, on which what is built for a
    card depends; empty without one."""
    with nvml() as pynvml:
        if not pynvml:
            return {}
        handle = used_card(pynvml)
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        return {"compute_capability": f"{major}.{minor}", "driver": str(pynvml.nvmlSystemGetDriverVersion())}


@functools.cache
def card_uuid() -> str | None:
    """The UUID of the NVIDIA card that this process uses; None without one."""
    with nvml() as pynvml:
        return str(pynvml.nvmlDeviceGetUUID(used_card(pynvml))) if pynvml else None


def pin_card() -> None:
    """Let child processes see only the card that this one uses: Triton puts the configured number of
    instances on each visible card."""
    uuid = card_uuid()
    if uuid:
        os.environ["CUDA_VISIBLE_DEVICES"] = uuid


def used_card(pynvml: Any) -> Any:
    """NVML's handle of the card that this process uses: the first that CUDA_VISIBLE_DEVICES names, or else
    the host's first. (NVML itself does not heed the variable.)"""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0].strip()
    if first.startswith(("GPU-", "MIG-")):
        return pynvml.nvmlDeviceGetHandleByUUID(first)
    return pynvml.nvmlDeviceGetHandleByIndex(int(first) if first.isdigit() else 0)


def instruction_sets() -> list[str]:
    """The vector instruction sets of this CPU, on which what is compiled for it depends."""
    flags = {word for line in _cpu_info("flags") for word in line.split()}
    return sorted(flag for flag in flags if flag.startswith(("avx", "amx", "fma")))


@contextmanager
def nvml() -> Iterator[Any]:
    """NVIDIA's management library, as long as the block runs; None without a driver or a card."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml if pynvml.nvmlDeviceGetCount() else None
    finally:
        pynvml.nvmlShutdown()


def matches(profile: GpuProfile) -> bool:
    """Whether the device that this process uses is the one that the profile describes."""
    name = card_name()
    return profile.device_kind == "cpu" or (name is not None and describes(profile, name))


def describes(profile: GpuProfile, name: str) -> bool:
    """Whether a card of this name is one of the profile's: one of the profile's words is in it, whole."""
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", name) for word in profile.device_names)


@contextmanager
def device_lock(device: str, *, exclusive: bool) -> Iterator[None]:
    """Hold this host's device: shared with other builds, or alone for a measurement.

    Each card of a host has a lock of its own. The kernel lets go of it when its holder dies, however it dies.
    Who waits is next: builds that come later do not overtake a measurement that waits for earlier ones. So a
    block that holds the device must not ask for it again.
    """
    path = LOCKS / f"{_lock_name(device)}.lock"
    descriptor = _open_lock(path)
    try:
        with work("wait"):
            turn = _open_lock(path.with_suffix(".turn"))
            try:
                _lock(turn, fcntl.LOCK_EX, device)
                _lock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, device)
            finally:
                os.close(turn)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def host_lock(what: str) -> Iterator[None]:
    """Hold, alone, what a host has one of for all its cards."""
    descriptor = _open_lock(LOCKS / f"{what}.lock")
    try:
        _lock(descriptor, fcntl.LOCK_EX, what)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int, device: str) -> None:
    """Wait for the lock, and say so where it is not free."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        log.info("waiting for %s: another campaign builds or measures there", device)
        fcntl.flock(descriptor, kind)


def _lock_name(device: str) -> str:
    """The card, whichever of its profiles is used; the profile's name where there is none."""
    return device if device == CPU else card_uuid() or device


def _open_lock(path: Path) -> int:
    """A descriptor to lock: every user of the host opens the file that the first one made, to read."""
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        pass
    with contextlib.suppress(FileExistsError):
        path.parent.mkdir()
        path.parent.chmod(0o1777)  # mkdir's own mode is cut by the umask
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
    with contextlib.suppress(PermissionError):
        os.fchmod(descriptor, 0o666)
    return descriptor


def _cpu_name() -> str:
    return next(iter(_cpu_info("model name")), platform.machine())


def _cpu_info(key: str) -> list[str]:
    """The entry of each core."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return [
        value.strip() for name, _, value in (line.partition(":") for line in lines) if name.strip() == key
    ]
