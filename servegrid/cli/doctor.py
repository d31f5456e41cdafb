"""Checks of this host, each with how to fix it."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from prefect.client.orchestration import get_client

from flows import local_server
from servegrid.domain.errors import UserError
from servegrid.domain.plugins import load_profile
from servegrid.domain.profile import GpuProfile, worker_command
from servegrid.domain.values import Value
from servegrid.formats import FORMATS
from servegrid.host import libpython
from servegrid.host.apt import AptError
from servegrid.host.cards import card, gpu_names
from servegrid.host.device_locks import LOCKS, host_lock
from servegrid.host.environment import describes, how_to_install, missing, provider, versions
from servegrid.loadgen.generators import GENERATORS
from servegrid.loadgen.perf_analyzer import install, trial
from servegrid.servers import embedded
from servegrid.store.site import Site
from tasks.export import EXPORTERS, LIBRARIES

MIN_DISK_GB = 5
MIN_SHM_MB = 256
PRODUCT_S = 300.0


class Check(Value):
    """One line of the doctor's table; `fix` is empty when all is well."""

    what: str
    found: str
    fix: str = ""
    required: bool = False


def install_server(site: Site) -> None:
    """Raises UserError when pip cannot get the wheel, or apt libpython."""
    try:
        embedded.install(site)
    except (AptError, subprocess.CalledProcessError) as error:
        raise UserError(f"the tritonserver wheel could not be installed: {error}") from error


def install_perf_analyzer(site: Site) -> None:
    """Install perf_analyzer and measure a tiny model with it; what fails is shown by its check."""
    install.install(site, lambda: trial.measure(site))


def check(site: Site) -> list[Check]:
    """Every check, in the order in which a newcomer needs them."""
    checks: dict[str, Callable[[], Check]] = {
        "Python": lambda: Check(what="Python", found=platform.python_version()),
        "tritonserver": lambda: _tritonserver(site),
        "libpython": lambda: _libpython(site),
        "perf_analyzer": lambda: _perf_analyzer(site),
        "frameworks": _frameworks,
        "compilers": _compilers,
        "card": lambda: _card(site),
        "product on the card": _product,
        "driver": _driver,
        "disk": lambda: _disk(site),
        "/dev/shm": _shared_memory,
        "ports": _ports,
        "device locks": _locks,
        "Prefect": lambda: _pools(site),
    }
    return [_checked(what, look) for what, look in checks.items()]


def _checked(what: str, look: Callable[[], Check]) -> Check:
    """A check; where it fails itself, with what it failed by."""
    try:
        return look()
    except Exception as error:  # whatever a host may be like, the other checks are shown
        reason = " ".join(str(error).split())
        fix = "correct what the error names, then run `servegrid doctor` again"
        return Check(what=what, found=f"{type(error).__name__}: {reason}", fix=fix, required=True)


def _tritonserver(site: Site) -> Check:
    problems = embedded.problems(site)
    found = f"{embedded.WHEEL} (release {embedded.TRITON_RELEASE})" if not problems else "not usable"
    return Check(what="tritonserver", found=found, fix="; ".join(problems), required=True)


def _perf_analyzer(site: Site) -> Check:
    problem = GENERATORS["perf_analyzer"].problem(site)
    found = "not usable; the project's own client measures" if problem else install.VERSION
    return Check(what="perf_analyzer", found=found, fix=problem or "")


def _frameworks() -> Check:
    wanted = {lib for known in FORMATS.values() for lib in known.libraries}
    wanted |= {lib for libraries in (*LIBRARIES.values(), *EXPORTERS.values()) for lib in libraries}
    absent = missing(wanted)
    there = sorted(filter(None, map(provider, wanted)))
    broken = {name: lacking for name in there if (lacking := _lacking(name))}
    found = ", ".join(
        f"{name} {version}{_of_host(provider(name))}" for name, version in versions(wanted).items()
    )
    fixes = [f"{how_to_install(absent)} in the checkout"] if absent else []
    fixes += [f"pip install {' '.join(lacking)} ({name} needs it)" for name, lacking in broken.items()]
    return Check(what="frameworks", found=found, fix="; ".join(fixes))


def _of_host(distribution: str | None) -> str:
    """Where a framework lies that is the host's own and not of this environment."""
    if distribution is None:
        return ""
    place = Path(str(metadata.distribution(distribution).locate_file(""))).resolve()
    return "" if place.is_relative_to(Path(sys.prefix).resolve()) else f" (the host's, in {place})"


def _lacking(distribution: str) -> list[str]:
    """What an installed distribution requires here and does not find."""
    needed = [Requirement(text) for text in metadata.requires(distribution) or ()]
    here = {r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})}
    return sorted(missing(here))


def _compilers() -> Check:
    wanted = {tool: name for name, known in FORMATS.items() for tool in known.tools}
    absent = [tool for tool in wanted if not shutil.which(tool)]
    found = ", ".join(f"{tool} {shutil.which(tool) or 'absent'}" for tool in wanted)
    needing = ", ".join(wanted[tool] for tool in absent)
    fix = f"install {', '.join(absent)} with the system's package manager, for {needing}" if absent else ""
    return Check(what="compilers", found=found, fix=fix)


def _libpython(site: Site) -> Check:
    path = libpython.find(site.home)
    found = str(path) if path.is_file() else "not there"
    fix = "" if path.is_file() else libpython.how_to_get()
    return Check(what="libpython", found=found, fix=fix, required=True)


def _profiles(site: Site) -> list[GpuProfile]:
    """The profiles that describe a card of this host, or its CPU where there is none."""
    known = [load_profile(site.profiles, path.stem) for path in sorted(site.profiles.glob("*.yaml"))]
    names = gpu_names()
    cards = [profile for profile in known if any(describes(profile, name) for name in names)]
    return cards if names else [profile for profile in known if profile.name == "cpu"]


def _card(site: Site) -> Check:
    names = gpu_names()
    if not names:
        return Check(what="card", found="none: the `cpu` profile is the one to use")
    profiles = _profiles(site)
    if not profiles:
        fix = f"write a profile with a word of this name: {site.profiles}/<name>.yaml, as h100.yaml is"
        return Check(what="card", found=", ".join(names), fix=fix)
    found = f"{', '.join(names)} (profile {', '.join(profile.name for profile in profiles)})"
    capability = card()["compute_capability"]
    wrong = [p.name for p in profiles if p.compute_capability not in (None, capability)]
    fix = f"the card has compute capability {capability}: correct profile {', '.join(wrong)}" if wrong else ""
    return Check(what="card", found=found, fix=fix)


PRODUCT = """
import torch
a = torch.ones(256, 256, device="cuda")
assert float((a @ a).sum()) == 256**3
print(torch.__version__, "on", torch.cuda.get_device_name())
"""


def _product() -> Check:
    """Whether PyTorch computes on the card: a build without CUDA, or for other cards, is found only so."""
    if not gpu_names():
        return Check(what="product on the card", found="none: there is no card")
    if missing(["torch"]):
        return Check(what="product on the card", found="not tried: torch is not installed")
    done = subprocess.run(
        [sys.executable, "-c", PRODUCT], capture_output=True, text=True, timeout=PRODUCT_S, check=False
    )
    if done.returncode == 0:
        return Check(what="product on the card", found=f"right, by torch {done.stdout.strip()}")
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    fix = "install a torch that is built for CUDA, this card and its driver"
    return Check(what="product on the card", found=f"failed: {last}", fix=fix)


def _driver() -> Check:
    facts = card()
    if facts:
        found = f"{facts['driver']}, compute capability {facts['compute_capability']}"
        return Check(what="driver", found=found)
    nodes = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    if not nodes:
        return Check(what="driver", found="none")
    fix = "install NVIDIA's driver; start a container with --gpus"
    return Check(what="driver", found=f"none that answers, though there is /dev/{nodes[0]}", fix=fix)


def _disk(site: Site) -> Check:
    folder = site.home if site.home.exists() else site.home.parent
    free = shutil.disk_usage(folder).free / 2**30
    fix = f"free {MIN_DISK_GB} GB, or set SERVEGRID_HOME" if free < MIN_DISK_GB else ""
    return Check(what="disk", found=f"{free:.0f} GB free below {folder}", fix=fix)


def _shared_memory() -> Check:
    stat = os.statvfs("/dev/shm")
    free = stat.f_bavail * stat.f_frsize / 2**20
    fix = "make /dev/shm larger (docker: --ipc=host or --shm-size)" if free < MIN_SHM_MB else ""
    return Check(what="/dev/shm", found=f"{free:.0f} MB free", fix=fix)


def _ports() -> Check:
    """The servers listen on free ports of loopback."""
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            probe.listen()
            with socket.create_connection(probe.getsockname(), timeout=5):
                return Check(what="ports", found="loopback has free ones")
    except OSError as error:
        fix = "bring the interface `lo` up, and let local processes connect to it"
        return Check(what="ports", found=f"127.0.0.1: {error}", fix=fix, required=True)


def _locks() -> Check:
    """Campaigns that share a device wait for each other by a lock that every user of the host can take."""
    try:
        with host_lock("doctor"):
            return Check(what="device locks", found=f"{LOCKS} can be used")
    except OSError as error:
        fix = f"chmod 1777 {LOCKS}, or remove it"
        return Check(what="device locks", found=str(error), fix=fix, required=True)


def _pools(site: Site) -> Check:
    """The pools of this host's profiles, and whether a worker polls them."""
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        return Check(what="Prefect", found="each command starts its own server (no PREFECT_API_URL)")
    wanted = {profile.pool for profile in _profiles(site)}
    if problem := local_server.problem():
        fix = "start that server, correct Prefect's settings, or unset PREFECT_API_URL"
        return Check(what="Prefect", found=f"{url}: {problem}", fix=fix, required=True)
    with get_client(sync_client=True) as client:
        pools = {pool.name: pool for pool in client.read_work_pools()}
    absent = sorted(wanted - set(pools))
    if absent:
        fix = "servegrid pools create"
        return Check(what="Prefect", found=f"{url}: no pool {', '.join(absent)}", fix=fix)
    idle = sorted(name for name in wanted if str(pools[name].status or "").rpartition(".")[2] != "READY")
    fix = "; ".join(map(worker_command, idle))
    workers = "without a worker" if idle else "with a worker"
    return Check(what="Prefect", found=f"{url}: pool {', '.join(sorted(wanted))} {workers}", fix=fix)
