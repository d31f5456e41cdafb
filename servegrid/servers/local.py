"""A tritonserver binary of this host, started so that its Python backend runs this interpreter."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from servegrid.domain.errors import StepError, UserError
from servegrid.domain.server import ServerChoice
from servegrid.host import libpython, process_environment
from servegrid.servers.base import Running
from servegrid.servers.launch import PORT_TAKEN, Start, started
from servegrid.store.site import Site

NOT_PLAIN = re.compile(r"[^\w@%+=,./-]")
PROTOCOLS = ("http", "grpc")


class Binary(NamedTuple):
    """A tritonserver and how to start it: the provider's name, the folders of its backends (the first that
    has a backend gives it), and options that its release needs."""

    provider: str
    path: Path
    backends: tuple[Path, ...]
    ready_s: float
    options: tuple[str, ...] = ()


def backends_in(folders: Sequence[Path]) -> dict[str, Path]:
    """The backends of Triton's layout below these folders, by name: `NAME/libtriton_NAME.so`."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*/libtriton_*.so")):
            if path.name == f"libtriton_{path.parent.name}.so":
                found.setdefault(path.parent.name, path.parent)
    return found


def more_backends(choice: ServerChoice) -> list[str]:
    """The names of the backends in the folder that the choice adds.

    Raises:
        UserError: there is none.
    """
    if choice.backends is None:
        return []
    found = backends_in([choice.backends])
    if not found:
        raise UserError(
            f"--backend-directory {choice.backends}: no backend is there; Triton's layout is "
            "onnxruntime/libtriton_onnxruntime.so"
        )
    return list(found)


@contextmanager
def local_server(binary: Binary, site: Site, repository: Path, log_path: Path) -> Iterator[Running]:
    """A ready server on `repository`, with no model loaded; gone when the block ends.

    Raises:
        StepError: it ended or was not ready in time.
    """
    with ExitStack() as stack:
        try:
            running = stack.enter_context(_once(binary, site, repository, log_path))
        except StepError as error:
            if PORT_TAKEN not in str(error):
                raise
            # Somebody has begun to listen where nobody did when the ports were chosen.
            running = stack.enter_context(_once(binary, site, repository, log_path))
        yield running


@contextmanager
def _once(binary: Binary, site: Site, repository: Path, log_path: Path) -> Iterator[Running]:
    start = Start.fresh()
    with ExitStack() as stack:
        joined = stack.enter_context(_joined(binary.backends))
        folders = for_a_shell(repository, joined, library_folder(site))
        models, backends, library = stack.enter_context(folders)
        env = {**process_environment.of_site(site.home), **environment(library)}
        args = [
            str(binary.path),
            *start.options(models),
            f"--backend-directory={backends}",
            "--allow-metrics=false",  # nobody reads them, and a port less may be taken by another
            *(f"--{kind}-address=127.0.0.1" for kind in PROTOCOLS),
            *(f"--{kind}-port={start.ports[kind]}" for kind in PROTOCOLS),
            *binary.options,
        ]
        yield stack.enter_context(
            started(args, start, provider=binary.provider, log_path=log_path, ready_s=binary.ready_s, env=env)
        )


@contextmanager
def _joined(folders: Sequence[Path]) -> Iterator[Path]:
    """One folder with the backends of all, as Triton takes only one: links, where they are several."""
    if len(folders) == 1:
        yield folders[0]
        return
    with tempfile.TemporaryDirectory(prefix="servegrid-") as temporary:
        for name, folder in backends_in(folders).items():
            Path(temporary, name).symlink_to(folder.absolute())
        yield Path(temporary)


@contextmanager
def for_a_shell(*folders: Path) -> Iterator[list[Path]]:
    """The folders, by links with plain names where theirs have a space or another special character: Triton's
    Python backend starts each model by a shell command without quotes, and LD_LIBRARY_PATH is split at `:`
    and `;`."""
    if not any(NOT_PLAIN.search(str(folder)) for folder in folders):
        yield list(folders)
        return
    place = None if not NOT_PLAIN.search(tempfile.gettempdir()) else "/tmp"  # noqa: S108
    with tempfile.TemporaryDirectory(prefix="servegrid-", dir=place) as temporary:
        links = [Path(temporary) / str(number) for number in range(len(folders))]
        for link, folder in zip(links, folders, strict=True):
            link.symlink_to(folder.absolute())
        yield links


def environment(library: Path) -> dict[str, str]:
    """The stub must find this interpreter's prefix (PATH) and its own libpython, in the folder `library`.

    With only the first it loads the system's libpython over another release's standard library. What
    LD_LIBRARY_PATH says already stays: in containers it names the driver's folder.
    """
    given = os.environ.get("LD_LIBRARY_PATH", "")
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "LD_LIBRARY_PATH": os.pathsep.join([str(library), *filter(None, [given])]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def library_folder(site: Site) -> Path:
    """A folder with libpython alone: the system's folder has other libraries, too, and a framework would take
    its cuDNN or its BLAS from there."""
    library = libpython.find(site.home)
    # Named by its place: hosts that share this home may have theirs elsewhere.
    folder = site.home.joinpath("libpython", *library.parent.parts[1:])
    link(folder, library)
    return folder


def link(folder: Path, target: Path) -> None:
    """Make a link to `target` in `folder`. A right link is not touched and a wrong one is replaced in one
    step, because servers of this home start at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / target.name
    if not place.is_symlink() or place.readlink() != target:
        fresh = folder / f".{target.name}.{os.getpid()}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target)
        fresh.replace(place)
