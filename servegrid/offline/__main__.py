"""`python3 -m servegrid.offline install DIR`, in the checkout: for a host that has nothing else yet."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from servegrid.offline.install import OfflineError, install


def main(arguments: list[str]) -> int:
    """Exit code 0; 2 with one line where it cannot be installed."""
    parser = argparse.ArgumentParser(prog="python3 -m servegrid.offline")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("install", help="install the project of this checkout from a folder")
    command.add_argument("folder", type=Path, metavar="DIR", help="made by `servegrid offline download`")
    command.add_argument(
        "--use-host",
        default="",
        metavar="NAMES",
        help="packages of this Python that are kept, with commas, as torch,onnxruntime",
    )
    chosen = parser.parse_args(arguments)
    root = Path(__file__).resolve().parents[2]
    home = Path(os.environ.get("SERVEGRID_HOME") or root / ".servegrid").absolute()
    names = [name.strip().lower() for name in chosen.use_host.split(",") if name.strip()]
    try:
        install(chosen.folder, root, home, names)
    except OfflineError as error:
        print(f"servegrid: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"servegrid: {error.cmd[0]} ended with exit code {error.returncode}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
