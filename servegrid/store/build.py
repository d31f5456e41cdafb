"""Runs build steps in child processes, the only ones that import a framework."""

from __future__ import annotations

import json
import logging
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from servegrid.domain.errors import StepError, UnsupportedError
from servegrid.domain.profile import Environment, Image
from servegrid.domain.root import ROOT
from servegrid.domain.values import ArtifactRef, Value
from servegrid.host import containers, proc, process_environment
from servegrid.host.device_locks import device_lock
from servegrid.host.files import write_atomic
from servegrid.host.stage_timer import work
from servegrid.store.job import Fields, Job
from servegrid.store.other_environment import container, interpreter
from servegrid.store.site import Site
from servegrid.store.store import BuildRequest

log = logging.getLogger("servegrid")

HIDDEN = re.compile(
    r"WARNING: All log messages before absl::InitializeLog"
    r"|I\d{4} \d\d:\d\d:\S+ +\d+ \w+\.cc:\d+\] oneDNN custom operations are on"
)
"""Lines that TensorFlow 2.21 writes on import, whatever its settings; they are shown in the log only."""

UNSUPPORTED_EXIT = 3
"""Exit code of a child whose step cannot be done here; the last line of its output is the reason."""


class Workplace(Value):
    """Where the steps of one cell run.

    plugin: the model's folder; paths: further folders that its files import from; profile: names the device
    that a step locks; cell: the name that its log files start with; timeout_s: of one step; environments: by
    step, for the steps that run in another environment than this one.
    """

    site: Site
    plugin: Path
    paths: tuple[Path, ...] = ()
    logs: Path
    profile: str
    cell: str
    timeout_s: float
    environments: dict[str, Environment] = Field({})


def build(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """The artifact of `request`, found in the store or made by its step.

    A step shares the device with other builds, unless it measures and is `alone` there.
    """

    def make(folder: Path) -> None:
        log.info("%s  %s: %s", at.cell, request.stage, "measuring" if request.alone else "building")
        with device_lock(at.profile, exclusive=request.alone), work(request.stage):
            run_step(
                request.stage,
                fields=request.fields,
                inputs=request.inputs,
                output=folder,
                at=at,
                files=request.files,
            )

    return at.site.store.build(request, make, cell=at.cell)


def run_step(
    step: str,
    *,
    fields: Fields,
    inputs: dict[str, ArtifactRef],
    output: Path,
    at: Workplace,
    files: dict[str, Path] | None = None,
    level: int = logging.INFO,
) -> None:
    """Run one step of `servegrid.frameworks` in a child process; it writes its files below `output`.

    inputs: artifacts; files: other paths that the step reads; both by the step's name for them.

    Raises:
        UnsupportedError: the step cannot be done here.
        StepError: it failed; the error has the log and the command that repeats the step.
    """
    paths = {key: at.site.store.path(ref) for key, ref in inputs.items()} | (files or {})
    job = Job[Fields](step=step, fields=fields, inputs=paths, plugin=at.plugin, paths=at.paths, output=output)
    job_path, log_path = at.logs / f"{at.cell}.{step}.json", at.logs / f"{at.cell}.{step}.log"
    write_atomic(job_path, job.model_dump_json(indent=1))
    child = _child(job, job_path, at, log_path.with_suffix(".out"))
    try:
        proc.run(
            child.command,
            log_path=log_path,
            timeout_s=at.timeout_s,
            env={**process_environment.of_site(at.site.home), **(child.env or {})},
            repeat=shlex.join(child.repeat),
            level=level,
            hidden=HIDDEN,
            container=child.container,
        )
    except StepError as error:
        if error.code == UNSUPPORTED_EXIT:
            raise UnsupportedError(proc.tail(log_path, lines=1)) from error
        raise StepError(f"{step} {error}", log=error.log, command=error.command) from error


def read_json(path: Path) -> Any:
    """A JSON file that a step wrote."""
    return json.loads(path.read_text(encoding="utf-8"))


class _Child(NamedTuple):
    """The command that runs a step, the one that repeats it by hand, and their environment and container."""

    command: Sequence[str]
    repeat: Sequence[str]
    env: dict[str, str] | None = None
    container: str = "-"


def _child(job: Job[Fields], path: Path, at: Workplace, again: Path) -> _Child:
    """The commands of a step in its environment; when repeated it writes into the folder `again`."""
    environment = at.environments.get(job.step)
    words = ["-P", "-m", "servegrid.frameworks", str(path)]
    words_again = [*words, "--output", str(again)]
    if not isinstance(environment, Image):
        python = str(interpreter(environment)) if environment else sys.executable
        env = {"PYTHONPATH": str(ROOT)} if environment else {}
        with_env = [*(["env"] if env else []), *(f"{name}={value}" for name, value in env.items())]
        return _Child([python, *words], [*with_env, python, *words_again], env)
    containers.remove_dead()
    name = containers.fresh_name()
    files = (path, job.plugin, *job.paths, *job.inputs.values())
    ours = container(environment, at.profile, files, job.output, name)
    by_hand = ours.model_copy(update={"name": None, "output": again.parent})
    return _Child(
        containers.argv(ours, ["python3", *words]),
        containers.argv(by_hand, ["python3", *words_again]),
        container=name,
    )
