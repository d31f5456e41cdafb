"""Files of each kind are read by one process a kind, where its framework may be."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

READ = """
import json, sys
from pathlib import Path
from servegrid.frameworks.model_files.model_file import read_model_file
from servegrid.frameworks.fields import ModelFileFields
from servegrid.store.job import Job
from servegrid.domain.errors import UnsupportedError
def read(kind, folder, case):
    output = Path(folder) / "made" / case["id"]
    output.mkdir(parents=True)
    inputs = {"file": Path(folder) / case["file"]}
    if "samples" in case:
        inputs["samples"] = Path(folder) / case["samples"]
    options = {name: case.get(name, {}) for name in ("shapes", "parameters")}
    fields = ModelFileFields(kind=kind, name="net", requires=[], **options)
    try:
        read_model_file(Job(step="", fields=fields, inputs=inputs, plugin=output, output=output))
        return "ok"
    except UnsupportedError as error:
        return str(error)
folder, kind = sys.argv[1:]
"""
REPORT = """
print("answers " + json.dumps({case["id"]: read(kind, folder, case) for case in cases}))
"""


class Runs:
    """A hostile pickle: unpickled, it would write the file `ran` into the working folder."""

    def __reduce__(self) -> Any:
        return (os.system, ("touch ran",))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for files, with a hostile pickle."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "pickle").write_bytes(pickle.dumps(Runs()))
    return folder


@pytest.fixture(scope="module")
def ask(files: Path, run_python: Callable[..., str]) -> Callable[..., dict[str, str]]:
    """`ask(kind, script, after)`: the message for each of the `cases` that a script makes, by their ids; a
    second script may work on with what was read."""

    def run(kind: str, script: str, after: str = "") -> dict[str, str]:
        output = run_python("\n".join((READ, script, REPORT, after)), files, kind)
        (line,) = (line for line in output.splitlines() if line.startswith("answers "))
        messages: dict[str, str] = json.loads(line.removeprefix("answers "))
        return messages

    return run
