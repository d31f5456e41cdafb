"""What this host has and lacks, and how to mend each."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable

from tasks.core.environment import gpu_names, how_to_install, missing, versions
from tasks.core.errors import UserError
from tasks.core.site import Site
from tasks.core.values import Value
from tasks.export import LIBRARIES
from tasks.formats import FORMATS
from tasks.loadgen import GENERATORS, install
from tasks.servers import embedded

MIN_DISK_GB = 5
MIN_SHM_MB = 256


class Check(Value):
    """One line of the doctor's table; `mend` is empty when all is well."""

    what: str
    found: str
    mend: str = ""
    required: bool = False


def install_server(site: Site) -> None:
    """Raises UserError when pip cannot get the wheel."""
    _run(embedded.install, site, "the tritonserver wheel")


def install_perf_analyzer(site: Site) -> None:
    """Raises UserError when it cannot be got for this host."""
    _run(install.install, site, "perf_analyzer")


def check(site: Site) -> list[Check]:
    """Every check, in the order in which a newcomer needs them."""
    problems = embedded.problems(site)
    checks = [
        Check(what="Python", found=platform.python_version()),
        Check(
            what="tritonserver",
            found=f"{embedded.WHEEL} (release {embedded.TRITON_RELEASE})" if not problems else "not usable",
            mend="; ".join(problems),
            required=True,
        ),
        _perf_analyzer(site),
        _frameworks(),
        _gpu(),
        _disk(site),
        _shared_memory(),
    ]
    return checks


def _perf_analyzer(site: Site) -> Check:
    problem = GENERATORS["perf_analyzer"].problem(site)
    found = "not usable; the project's own client measures" if problem else install.VERSION
    return Check(what="perf_analyzer", found=found, mend=problem or "")


def _frameworks() -> Check:
    wanted = {lib for module in FORMATS.values() for lib in module.LIBRARIES}
    wanted |= {lib for libraries in LIBRARIES.values() for lib in libraries}
    absent = missing(wanted)
    found = ", ".join(f"{name} {version}" for name, version in versions(wanted).items())
    mend = f"{how_to_install(absent)} in the checkout" if absent else ""
    return Check(what="frameworks", found=found, mend=mend)


def _gpu() -> Check:
    names = gpu_names()
    return Check(what="GPU", found=", ".join(names) or "none: the `cpu` profile is the one to use")


def _disk(site: Site) -> Check:
    folder = site.home if site.home.exists() else site.home.parent
    free = shutil.disk_usage(folder).free / 2**30
    mend = f"free {MIN_DISK_GB} GB, or set SERVEGRID_HOME" if free < MIN_DISK_GB else ""
    return Check(what="disk", found=f"{free:.0f} GB free below {folder}", mend=mend)


def _shared_memory() -> Check:
    stat = os.statvfs("/dev/shm")
    free = stat.f_bavail * stat.f_frsize / 2**20
    mend = "make /dev/shm larger (docker: --ipc=host or --shm-size)" if free < MIN_SHM_MB else ""
    return Check(what="/dev/shm", found=f"{free:.0f} MB free", mend=mend)


def _run(installer: Callable[[Site], object], site: Site, what: str) -> None:
    try:
        installer(site)
    except subprocess.CalledProcessError as error:
        raise UserError(f"{what} could not be installed: {error}") from error
