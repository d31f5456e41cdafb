"""The commands of `servegrid offline`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from servegrid.cli.table import say
from servegrid.domain.root import ROOT

offline = typer.Typer(help="For a host without a network (docs/offline.md).", no_args_is_help=True)


@offline.command()
def download(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder to fill.")],
    python: Annotated[str | None, typer.Option(help="For this Python, as 3.12; by default this one.")] = None,
) -> None:
    """Download all that `install` needs into a folder, on a host with a network."""
    from servegrid.offline.download import download as fill

    fill(folder, ROOT, python, say)


@offline.command()
def install(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of `offline download`.")],
    use_host: Annotated[
        str, typer.Option(help="Packages of this host's Python to keep, as torch,onnxruntime.")
    ] = "",
) -> None:
    """Install the checkout from a folder, without a network. A host without servegrid runs
    `python3 -m servegrid.offline install DIR` in the checkout."""
    python = getattr(sys, "_base_executable", sys.executable)  # the environment itself is made anew
    words = [python, "-m", "servegrid.offline", "install", str(folder.absolute())]
    words += ["--use-host", use_host] if use_host else []
    raise typer.Exit(subprocess.run(words, cwd=ROOT, check=False).returncode)
