"""Installs perf_analyzer for this host: its wheel, CUDA's runtime and, where libc is too old, a newer libc.

The binary needs glibc 2.38 and, also on a host without a card, libcudart. On an older Debian the next
release's libc, libstdc++, libgcc, OpenSSL, zlib and zstd go into a private folder, and the binary runs
through that folder's loader: the system's libraries stay as they are.

    <home>/perf-analyzer/wheel/      the wheel
    <home>/perf-analyzer/lib/        libraries that the host lacks
    <home>/perf-analyzer/trial.json  whether it measured here when it was installed; if not, why
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from servegrid.domain.errors import StepError, UserError
from servegrid.domain.values import Value
from servegrid.host.apt import Apt, AptError, kept
from servegrid.host.files import write_atomic
from servegrid.store.site import Site

VERSION = "2.60.0"
PLATFORM = "manylinux_2_38_x86_64"
"""Of its wheel."""
NEEDS_GLIBC = (2, 38)
NEXT_DEBIAN = {"bookworm": "trixie"}
PACKAGES = ("libc6", "libstdc++6", "libgcc-s1", "libssl3t64", "zlib1g", "libzstd1")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
CUDA_RUNTIME = "nvidia-cuda-runtime-cu12==12.9.79"
"""CUDA 12's runtime works with the driver of CUDA 12 and later (NVIDIA, "CUDA Compatibility")."""
BINARY = Path("wheel/perf_analyzer/bin/perf_analyzer")
LOADER = "ld-linux-x86-64.so.2"
AGAIN = "`servegrid doctor --install-perf-analyzer` tries again"


class Trial(Value):
    """The result of the installation; `problem` is None if perf_analyzer measured a model here."""

    version: str
    problem: str | None


def command(site: Site) -> list[str] | None:
    """The start of a command line that runs perf_analyzer here; None where it is not installed."""
    return _command(_folder(site))


def problem(site: Site) -> str | None:
    """Why perf_analyzer cannot be used here, with what to do; None where it can."""
    path = _folder(site) / "trial.json"
    trial = Trial.model_validate_json(path.read_bytes()) if path.is_file() else None
    if trial is None or trial.version != VERSION:
        return "perf_analyzer is not installed; `servegrid doctor --install-perf-analyzer` installs it"
    if trial.problem:
        return f"perf_analyzer: {trial.problem}; {AGAIN}"
    if command(site) is None:  # a shared home, and a host whose libc is older
        return f"perf_analyzer was installed for another host's libc; {AGAIN}"
    return None


def install(site: Site, measure: Callable[[], None]) -> None:
    """Install it and try it: `measure` measures a model with what is installed.

    A problem is recorded, so that every campaign of this host uses the same load generator.
    """
    folder, fresh = _folder(site), _folder(site).with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    (fresh / "lib").mkdir(parents=True)
    problem = None
    try:
        _download(fresh)
    except (UserError, AptError) as error:
        problem = str(error)
    except subprocess.CalledProcessError as error:
        problem = f"pip ended with exit code {error.returncode}"
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)
    if problem is None:
        try:
            measure()
        except (UserError, StepError) as error:
            problem = f"a trial measurement failed: {' '.join(str(error).split())}"
    write_atomic(folder / "trial.json", Trial(version=VERSION, problem=problem).model_dump_json())


def _download(folder: Path) -> None:
    _pip(folder / "wheel", f"perf-analyzer=={VERSION}", f"--platform={PLATFORM}")
    (folder / BINARY).chmod(0o755)
    _pip(folder / "cuda", CUDA_RUNTIME)
    (library,) = (folder / "cuda").rglob("libcudart.so.*")
    shutil.copy(library, folder / "lib" / "libcudart.so")  # the name by which the binary opens it
    shutil.rmtree(folder / "cuda")
    if _glibc() < NEEDS_GLIBC:
        _install_libraries(folder / "lib")


def _pip(target: Path, *arguments: str) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*pip, f"--target={target}", *arguments], check=True)


def _command(folder: Path) -> list[str] | None:
    binary, libraries = folder / BINARY, folder / "lib"
    if not binary.is_file():
        return None
    # A container's LD_LIBRARY_PATH names the folder of the card's driver.
    path = os.pathsep.join([str(libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    if _glibc() >= NEEDS_GLIBC:
        return ["env", f"LD_LIBRARY_PATH={path}", str(binary)]
    if not (libraries / LOADER).is_file():
        return None
    return [str(libraries / LOADER), "--library-path", path, str(binary)]


def keep_libraries(target: Path) -> None:
    """Download the packages of `_install_libraries` into a folder, for a host without a network; none where
    this host's libc is new enough.

    Raises:
        AptError, UserError: they cannot be had.
    """
    if _glibc() < NEEDS_GLIBC:
        with tempfile.TemporaryDirectory() as folder:
            _next_release(Path(folder)).download(PACKAGES, target)


def _install_libraries(libraries: Path) -> None:
    """Raises AptError or UserError where the next release's packages cannot be had."""
    with tempfile.TemporaryDirectory(dir=libraries.parent) as folder:
        (kept() or _next_release(Path(folder))).unpack(PACKAGES, Path(folder, "root"))
        for path in Path(folder, "root").rglob("*.so*"):
            if path.is_file() and "gconv" not in path.parts:
                shutil.copy(path, libraries / path.name)


def _next_release(folder: Path) -> Apt:
    """apt with the packages of the Debian that follows this one."""
    release = platform.freedesktop_os_release()
    codename = release.get("VERSION_CODENAME", "")
    following = NEXT_DEBIAN.get(codename)
    if not following:
        raise UserError(
            f"it needs glibc {'.'.join(map(str, NEEDS_GLIBC))}, and this host "
            f"({release.get('PRETTY_NAME')}) has {'.'.join(map(str, _glibc()))}"
        )
    sources = folder / "sources.list"
    sources.write_text(f"deb [signed-by={KEYRING}] {_mirror(codename)} {following} main\n")
    return Apt(folder, sources)


def _mirror(codename: str) -> str:
    """The mirror from which this machine's own apt sources take their release `codename`."""
    form = ["--no-release-info", "--format=$(RELEASE) $(SITE)", "Created-By: Packages"]
    targets = subprocess.run(["apt-get", "indextargets", *form], check=True, capture_output=True, text=True)
    for line in targets.stdout.splitlines():
        release, _, site = line.partition(" ")
        if release == codename:
            return site
    raise UserError(f"this host's apt sources name no mirror of {codename}")


def _glibc() -> tuple[int, ...]:
    """(0,) where the C library is another one."""
    name, version = platform.libc_ver()
    return tuple(int(part) for part in version.split(".")) if name == "glibc" else (0,)


def _folder(site: Site) -> Path:
    return site.home / "perf-analyzer"
