"""Steps that run a plug-in's own Python: its preparation, its data, its metric."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from servegrid.domain.arrays import Arrays, concatenate
from servegrid.frameworks import published
from servegrid.store.build import Job

Batch = tuple[Any, Arrays, Arrays]


@contextmanager
def import_path(*folders: Path) -> Iterator[None]:
    """Puts a model's folders first on the import path; at the end they and their modules are removed.

    Two models may have files of equal names: without this, the second model loaded in a process would get
    modules of the first.
    """
    before = list(sys.path)
    sys.path[:0] = map(str, folders)
    try:
        yield
    finally:
        sys.path[:] = before
        _remove_modules(folders)


def load(job: Job, file: str) -> ModuleType:
    """A plug-in file as a module, by path: `models` is never a package that could hide a user's."""
    published.offer_toolkit()
    name = f"_plugin_{file.removesuffix('.py')}"
    spec = importlib.util.spec_from_file_location(name, job.plugin / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def arguments(job: Job, function: Callable[..., Any], **more: Any) -> dict[str, Any]:
    """Those of the model's parameters, and of `more`, that `function` takes.

    They are the variant's, and what `prepare` returned, whose values are file names. With random
    weights nothing is prepared. A published file's own flags have their defaults and types from its
    `update_argparser`.
    """
    known = dict(job.fields["parameters"])
    if "prepared" in job.inputs:
        prepared = job.inputs["prepared"]
        files = json.loads((prepared / "parameters.json").read_text(encoding="utf-8"))
        known |= {name: str(prepared / file) for name, file in files.items()}
    known |= more
    known = published.flags(sys.modules.get(function.__module__), known)
    parameters = inspect.signature(function).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return known
    return {name: known[name] for name in parameters if name in known}


def batches(job: Job, batch_size: int) -> Iterator[Batch]:
    """The model's own data, `batch_size` samples at a time."""
    make = load(job, "dataloader.py").get_dataloader_fn
    yield from make(**arguments(job, make, batch_size=batch_size))()


def prepare(job: Job) -> None:
    """Checkpoint and data of a variant; `parameters.json` names the files for the other steps."""
    plugin = load(job, "prepare.py")
    files = plugin.prepare(
        job.fields["variant"], job.output, job.inputs.get("sources"), job.fields["parameters"]
    )
    (job.output / "parameters.json").write_text(json.dumps(files, indent=1), encoding="utf-8")


def profile_data(job: Job) -> None:
    """`samples.npz`: the first samples of the data, `x/<input>`, `y/<output>` and `ids`."""
    wanted = job.fields["samples"]
    parts: dict[str, list[Any]] = {}
    count = 0
    for ids, x, y in batches(job, batch_size=min(wanted, 64)):
        take = min(len(ids), wanted - count)
        arrays = {"ids": np.asarray(ids)} | {f"x/{k}": v for k, v in x.items()}
        arrays |= {f"y/{k}": v for k, v in (y or {}).items()}
        for name, array in arrays.items():
            parts.setdefault(name, []).append(np.asarray(array)[:take])
        count += take
        if count == wanted:
            break
    if not count:
        raise ValueError("dataloader.py: get_dataloader_fn's iterator gave no batch")
    print(f"{count} samples")
    np.savez(job.output / "samples.npz", allow_pickle=False, **{k: concatenate(v) for k, v in parts.items()})


def score(job: Job) -> None:
    """`metrics.json`: the plug-in's metrics of several sets of predictions on the same samples.

    `predictions` of the fields names the sets; each is an input of the job, an .npz file that holds one array
    an output.
    """
    make = load(job, "metrics.py").MetricsCalculator
    samples = np.load(job.inputs["samples"] / "samples.npz")
    x = {k[2:]: samples[k] for k in samples if k.startswith("x/")}
    y = {k[2:]: samples[k] for k in samples if k.startswith("y/")}
    result = {}
    for name in job.fields["predictions"]:
        calculator = make(**arguments(job, make))
        with np.load(job.inputs[name]) as outputs:
            y_pred = {k: outputs[k] for k in outputs}
        metrics = _metrics(calculator, ids=samples["ids"], y_pred=y_pred, x=x, y_real=y)
        result[name] = {k: float(v) for k, v in metrics.items()}
        print(f"{name}: {', '.join(f'{k} {v:.4f}' for k, v in result[name].items())}")
    (job.output / "metrics.json").write_text(json.dumps(result, indent=1), encoding="utf-8")


def _metrics(calculator: Any, **batch: Any) -> dict[str, Any]:
    """A calculator's metrics of one batch, by `update` and `metrics` or by the older `calc`."""
    if hasattr(calculator, "update"):
        calculator.update(**batch)
        found: dict[str, Any] = calculator.metrics
    else:
        found = calculator.calc(**batch)
    return found


def _remove_modules(folders: tuple[Path, ...]) -> None:
    """Removes from `sys.modules` the files and packages of these folders."""
    places = {folder.resolve() for folder in folders}
    found = {top for top in {name.partition(".")[0] for name in sys.modules} if _place(top) in places}
    for name in [name for name in sys.modules if name.partition(".")[0] in found]:
        del sys.modules[name]


def _place(name: str) -> Path | None:
    """The folder that a loaded top-level module lies in; None for one without a file."""
    module = sys.modules.get(name)
    paths = [*getattr(module, "__path__", ()), getattr(module, "__file__", None)]
    return Path(paths[0]).resolve().parent if paths[0] else None
