"""Getting perf_analyzer to run on this host: its wheel and, where libc is too old, a private newer one.

The wheel's binary needs glibc 2.38. On an older Debian the next release's libc, libstdc++, libgcc,
OpenSSL, zlib and zstd go into a folder of their own, and the binary runs through that folder's loader;
the system's libraries stay as they are.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from tasks.core.errors import UserError
from tasks.core.site import Site

VERSION = "2.60.0"
NEEDS_GLIBC = (2, 38)
NEXT_DEBIAN = {"bookworm": "trixie"}
PACKAGES = ("libc6", "libstdc++6", "libgcc-s1", "libssl3t64", "zlib1g", "libzstd1")
BINARY = Path("wheel/perf_analyzer/bin/perf_analyzer")
LOADER = "ld-linux-x86-64.so.2"


def command(site: Site) -> list[str] | None:
    """The start of a command line that runs perf_analyzer here; None where it is not installed."""
    return _command(_folder(site))


def install(site: Site) -> list[str]:
    """Install it, try it and return its command.

    Raises:
        UserError: this host's libc is too old, and it is not a Debian whose next release is known.
        subprocess.CalledProcessError: pip, apt-get, dpkg-deb or the binary itself failed.
    """
    folder, fresh = _folder(site), _folder(site).with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"),
            *("--platform=manylinux_2_38_x86_64", f"--target={fresh / 'wheel'}"),
            f"perf-analyzer=={VERSION}",
        ],
        check=True,
    )
    (fresh / BINARY).chmod(0o755)
    if _glibc() < NEEDS_GLIBC:
        _install_libraries(fresh)
    subprocess.run([*(_command(fresh) or []), "--version"], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)
    return _command(folder) or []


def _command(folder: Path) -> list[str] | None:
    binary, loader = folder / BINARY, folder / "lib" / LOADER
    if not binary.is_file():
        return None
    if _glibc() >= NEEDS_GLIBC:
        return [str(binary)]
    if not loader.is_file():
        return None
    return [str(loader), "--library-path", str(loader.parent), str(binary)]


def _install_libraries(folder: Path) -> None:
    release = platform.freedesktop_os_release()
    codename = release.get("VERSION_CODENAME", "")
    following = NEXT_DEBIAN.get(codename)
    if not following or not shutil.which("apt-get"):
        raise UserError(
            f"perf_analyzer needs glibc {'.'.join(map(str, NEEDS_GLIBC))}, this host "
            f"({release.get('PRETTY_NAME')}) has {'.'.join(map(str, _glibc()))}: use the project's own "
            f"client (`--generator client`), or a newer system"
        )
    apt = folder / "apt"
    for name in ("state/lists/partial", "cache/archives/partial", "etc", "debs", "root"):
        (apt / name).mkdir(parents=True)
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (apt / "etc" / "sources.list").write_text(
        f"deb [signed-by={keyring}] {_mirror(codename)} {following} main\n"
    )
    options = [
        f"-oDir::State={apt / 'state'}",
        f"-oDir::Cache={apt / 'cache'}",
        f"-oDir::Etc::SourceList={apt / 'etc' / 'sources.list'}",
        "-oDir::Etc::SourceParts=-",
        "-oDir::State::Status=/dev/null",
        "-oAcquire::Languages=none",
    ]
    if os.geteuid() == 0:
        options.append("-oAPT::Sandbox::User=root")  # apt's own user may not reach this folder
    subprocess.run(["apt-get", *options, "--quiet=2", "update"], check=True)
    subprocess.run(["apt-get", *options, "--quiet=2", "download", *PACKAGES], check=True, cwd=apt / "debs")
    for package in sorted((apt / "debs").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(apt / "root")], check=True)
    libraries = folder / "lib"
    libraries.mkdir()
    for path in (apt / "root").rglob("*.so*"):
        if path.is_file() and "gconv" not in path.parts:
            shutil.copy(path, libraries / path.name)
    shutil.rmtree(apt)


def _mirror(codename: str) -> str:
    """The mirror from which this machine's own apt sources take their release `codename`."""
    targets = subprocess.run(
        [
            "apt-get",
            "indextargets",
            "--no-release-info",
            "--format=$(RELEASE) $(SITE)",
            "Created-By: Packages",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for line in targets.splitlines():
        release, _, site = line.partition(" ")
        if release == codename:
            return site
    raise UserError(f"perf_analyzer: the machine's apt sources name no mirror of {codename}")


def _glibc() -> tuple[int, ...]:
    """(0,) where the C library is another one."""
    name, version = platform.libc_ver()
    return tuple(int(part) for part in version.split(".")) if name == "glibc" else (0,)


def _folder(site: Site) -> Path:
    return site.home / "perf-analyzer"
