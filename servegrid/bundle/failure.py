"""The bundle of an `error` cell: what the failed step read, and a script that repeats it.

repeat.sh             the one command; neither Prefect nor the campaign is needed
cell.json             the cell's row: options, versions, machine, reason
logs/                 logs of the cell's steps and of its server
job.json, inputs/, plugin/, paths/   where a step in a child process failed: its job and inputs
model_repository/, start-*.sh        where it failed later: what the server was to load
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from servegrid.bundle.folder import copy, new_bundle, write_json, write_script
from servegrid.bundle.start_scripts import REPOSITORY, hosted, write_starts
from servegrid.campaign.columns import OBJECTS, parse_json
from servegrid.campaign.layout import CampaignLayout
from servegrid.campaign.results import Row
from servegrid.domain.errors import UserError
from servegrid.frameworks.fields import PluginFields
from servegrid.frameworks.steps import read_job
from servegrid.store.job import Fields, Job
from servegrid.store.other_environment import CODE
from servegrid.store.site import Site
from servegrid.store.sources import imported_modules


def bundle_failure(campaign: Path, row: Row, target: Path, site: Site) -> None:
    """Write the bundle of the `error` cell of a row into a new folder.

    Raises:
        UserError: a file that the step read is missing, or a link leads out of its folder.
    """
    files = CampaignLayout(folder=campaign).written(row["profile"], row["cell"])
    with new_bundle(target) as fresh:
        write_json(fresh / "cell.json", _spec(row))
        for path in _logs(files.logs, row):
            copy(path, fresh / "logs" / path.name, (path,))
        repository = files.repository(row["cell"])
        job = _job(files.logs, row)
        if job:
            _pack_step(job, row, fresh, site)
        elif repository.is_dir():
            copy(repository, fresh / REPOSITORY, (campaign, site.store.root))
            write_starts(fresh, row, site)
        if not (fresh / "repeat.sh").exists():
            write_script(fresh / "repeat.sh", _whole(row))
        readme = _README.format(**row, reason_text=row["reason"].strip(), how=_how(fresh))
        (fresh / "README.md").write_text(readme, encoding="utf-8")


def _pack_step(job: Job[Fields], row: Row, fresh: Path, site: Site) -> None:
    """The job and the inputs of a step in a child process, under paths of the folder."""
    inputs = {}
    for name, path in job.inputs.items():
        inputs[name] = Path("inputs") / name / ("" if path.is_dir() else path.name)
        if path.exists() or path.is_relative_to(site.store.root):  # users' files may never have been there
            copy(path, fresh / inputs[name], (path, site.store.root, site.sources))
    copy(job.plugin, fresh / "plugin", (job.plugin, site.models))
    paths = [Path("paths") / str(number) for number, _ in enumerate(job.paths)]
    for source, folder in zip(job.paths, paths, strict=True):
        (fresh / folder).mkdir(parents=True)
        modules = imported_modules(job.plugin.glob("*.py"), (job.plugin, *job.paths))
        for module in sorted(path for path in modules if path.is_relative_to(source)):
            copy(module, fresh / folder / module.relative_to(source), (source,))
    fields = job.fields
    parameters = dict(fields.parameters) if isinstance(fields, PluginFields) else {}
    for name, value in parameters.items():
        if isinstance(value, str) and Path(value).is_absolute() and Path(value).exists():
            place = f"files/{name}/{Path(value).name}"
            copy(Path(value), fresh / place, (Path(value),))
            parameters[name] = place
    if parameters:
        fields = fields.model_copy(update={"parameters": parameters})
    moved: dict[str, Any] = {"inputs": inputs, "plugin": Path("plugin"), "paths": tuple(paths)}
    moved_job = job.model_copy(update=moved | {"fields": fields, "output": Path("output")})
    (fresh / "job.json").write_text(moved_job.model_dump_json(indent=1) + "\n", encoding="utf-8")
    write_script(fresh / "repeat.sh", *_step_lines(shlex.split(row["command"])))


def _step_lines(words: list[str]) -> list[str]:
    """What runs the step of a repeat command in the bundle's folder: in its interpreter, or its image, which
    sees this folder in the place of all that the step read."""
    at = words.index("-P")
    if words[0] != "docker":
        exports = [f"export {shlex.quote(word)}" for word in words[: at - 1] if "=" in word]
        return [*exports, f'exec "${{PYTHON:-{words[at - 1]}}}" {_STEP}']
    options, image = words[: at - 2], words[at - 2]
    mounts = [place for place, word in enumerate(options) if word == "--mount"]
    gone = {n for place in mounts if f"source={CODE}," not in options[place + 1] for n in (place, place + 1)}
    kept = shlex.join(word for place, word in enumerate(options) if place not in gone)
    return [f'exec {kept} --volume "$PWD:$PWD" --workdir "$PWD" {image} {words[at - 1]} {_STEP}']


_STEP = "-P -m servegrid.frameworks job.json --output output"


def _job(logs: Path, row: Row) -> Job[Fields] | None:
    """The job of the child process that failed; None where no such process failed."""
    words = shlex.split(row["command"] or "")
    if "servegrid.frameworks" not in words:
        return None
    path = logs / Path(words[words.index("servegrid.frameworks") + 1]).name
    if not path.is_file():
        raise UserError(f"{path} is missing; run the cell again")
    return read_job(path)


def _logs(logs: Path, row: Row) -> Iterator[Path]:
    """The logs of the cell, and the one that its row names."""
    named = Path(row["log"] or "")
    found = {path for path in logs.glob(f"{row['cell']}.*") if path.is_file()}
    return iter(sorted(found | ({named} if named.is_file() else set())))


def _whole(row: Row) -> str:
    """What repeats a failure outside of a child process: loading it into a bare server, or the whole cell."""
    stages = list(parse_json(row["stage_s"]))
    if stages[-1:] == ["deploy"]:
        return "exec sh start-embedded.sh" if hosted(row) else "exec sh start-docker.sh"
    return f"exec {row['command']}"


def _spec(row: Row) -> dict[str, Any]:
    """The row without what was not reached; columns that hold JSON as what they hold."""
    known = {name: value for name, value in row.items() if value is not None}
    return known | {name: parse_json(known[name]) for name in OBJECTS if name in known}


def _how(folder: Path) -> str:
    if (folder / "job.json").exists():
        return (
            "`sh repeat.sh` runs just the step that failed, on the copies in this folder; what it makes\n"
            "goes to `output/`. On another host let PYTHON name an interpreter that has servegrid and the\n"
            "versions of `cell.json`."
        )
    if (folder / REPOSITORY).exists():
        return (
            "`sh repeat.sh` repeats it. `start-*.sh` load `model_repository/` into a bare server, as it was\n"
            "to be served; GRPC_PORT moves its port, of the embedded one also HTTP_PORT and METRICS_PORT."
        )
    return "`sh repeat.sh` runs the cell again."


_README = """# {cell}: error

In campaign {campaign}, profile {profile}:

```
{reason_text}
```

{how}

`cell.json` has options, versions and machine; `logs/` has the logs.
"""
