"""`make mutations`: how many mutants the verdict catches, and whether a right but unusual model fails.

Each is served by a real tritonserver and goes the way of a cell: deployed, proven, measured, dynamically and
then statically. Exits with 1 when fewer than 58 of 60 are caught, or a right model fails.
"""

from __future__ import annotations

import argparse
import collections
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from mutants import METRIC, MUTANTS, UNUSUAL, Mutant

from servegrid.domain.errors import StepError, WrongAnswerError
from servegrid.domain.plugins import Plugin
from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import ArtifactRef, Cell, Interface, LoadPlan, Product, Serving
from servegrid.formats.runtime_files import MODEL, session_file
from servegrid.host import device_locks
from servegrid.loadgen.measured import PartlyMeasuredError
from servegrid.servers import embedded
from servegrid.servers.base import Running
from servegrid.store.build import Workplace
from servegrid.store.site import Site, default_site
from tasks.configure import configure
from tasks.correctness import Proofs, answers_of, correctness
from tasks.deploy import deploy
from tasks.performance import performance

SAMPLES, LARGEST, BAR = 96, 32, 58 / 60
FLOATS = [{"name": name, "dtype": "float32", "shape": ["batch", 8]} for name in "ab"]
OUTPUTS = [
    *({"name": name, "dtype": "float32", "shape": ["batch", 8]} for name in ("total", "difference")),
    {"name": "label", "dtype": "int64", "shape": ["batch", 1]},
]
SPEC: dict[str, Any] = {
    "name": "mutant",
    "description": "a tiny model to break",
    "framework": "torch",
    "requires": [],
    "opset": 17,
    "inputs": FLOATS,
    "outputs": OUTPUTS,
    "formats": {"onnx": {"export": "onnx", "precisions": ["fp32"]}},
    "tolerances": {"fp32": {"absolute": 1e-4, "relative": 1e-4, "cosine": 0.9999}},
    "variants": {
        "tiny": {
            "parameters": {},
            "samples": SAMPLES,
            "serving": {
                "max_batch_size": LARGEST,
                "preferred_batch_sizes": [8, 24],
                "max_queue_delay_us": 100,
                "load_timeout_s": 60,
            },
            "offline": {"batch_sizes": [1, 24]},
            "online": {"client_batch": 1, "concurrency": [8]},
            "metric": {"name": "accuracy", "threshold": 0.9, "drop": {"fp32": 0.001}},
        }
    },
}
TOLD = """
_initialize = TritonPythonModel.initialize
def _told(self, args):
    _initialize(self, args)
    self._session.static = "dynamic_batching" not in json.loads(args["model_config"])
    self._session.instance = args["model_instance_name"]
TritonPythonModel.initialize = _told
"""


class Trial:
    """One mutant's folders, and its way through a cell."""

    def __init__(self, mutant: Mutant, site: Site, folder: Path, running: Running) -> None:
        self.mutant, self.running, self.folder = mutant, running, folder
        self.site = site.model_copy(update={"home": folder})
        self.plugin = Plugin(spec=ModelSpec.model_validate(SPEC), folder=folder / "plugin")
        self.cell = self._cell()
        self.at = Workplace(
            site=self.site,
            plugin=self.plugin.folder,
            logs=folder / "campaign" / "logs",
            profile="cpu",
            cell=self.cell.name,
            timeout_s=60,
        )

    def verdict(self) -> str:
        """What failed, or nothing."""
        self._write()
        samples, reference = self._ref("samples"), self._ref("reference")
        try:
            configured = configure.fn(
                self.cell, self._ref("artifact"), self.folder.parent / "repository", self.at
            )
            self._put_session(configured.repository / configured.model / "1")
            expected = answers_of(self.plugin, self.cell, reference, self.at)
            sizes = (*self.cell.offline.batch_sizes, LARGEST)
            endpoint = deploy.fn(self.running, configured, self.cell.dynamic, samples, self.at, sizes)
            proofs = Proofs(prepared=None, samples=samples, reference=reference, converted_answers=None)
            found = correctness.fn(self.plugin, self.cell, endpoint, proofs, self.at)
            if found.failures:
                return "; ".join(found.failures)
            for plan, serving in (
                (self.cell.online, self.cell.dynamic),
                (self.cell.offline, self.cell.static),
            ):
                if serving is self.cell.static:
                    endpoint = deploy.fn(self.running, configured, serving, samples, self.at)
                performance.fn(plan, serving, endpoint, samples, expected, self.at)
        except PartlyMeasuredError as error:
            kind = "failed_accuracy" if isinstance(error.cause, WrongAnswerError) else "error"
            return f"{kind}: {error}"
        except StepError as error:
            kind = "failed_accuracy" if isinstance(error, WrongAnswerError) else "error"
            return f"{kind}: {error}"
        return ""

    def _cell(self) -> Cell:
        dynamic = Serving(
            batching="dynamic",
            max_batch_size=LARGEST,
            preferred_batch_sizes=(8, 24),
            max_queue_delay_us=100,
            instances=self.mutant.instances,
            protocol=self.mutant.protocol,
        )
        static = dynamic.model_copy(update={"batching": "static", "preferred_batch_sizes": ()})
        load = {
            "generator": "client",
            "request_count": 20,
            "window_s": 0.1,
            "protocol": self.mutant.protocol,
            "shared_memory": self.mutant.shared_memory,
        }
        online = load | {"scenario": "online", "batch_sizes": (1,), "concurrency": (8,)}
        offline = load | {"scenario": "offline", "batch_sizes": (1, 24), "concurrency": (1,)}
        product = Product(
            model="mutant", variant="tiny", export_format="onnx", format="onnx", precision="fp32",
            triton_release="24.10",
        )  # fmt: skip
        return Cell(
            product=product,
            static=static,
            dynamic=dynamic,
            offline=LoadPlan.model_validate(offline),
            online=LoadPlan.model_validate(online),
            profile="cpu",
        )

    def _ref(self, name: str) -> ArtifactRef:
        return ArtifactRef(digest=name, path=name, size=0)

    def _write(self) -> None:
        """Samples, labels, the reference's answers, artifact and metric."""
        store = self.folder / "store"
        for folder in (store / "samples", store / "reference", store / "artifact", self.plugin.folder):
            folder.mkdir(parents=True)
        random = np.random.default_rng(0)
        weights = random.normal(size=(8, 8)).astype(np.float32)
        np.save(store / "artifact" / "weights.npy", weights)
        x = {name: random.normal(size=(SAMPLES, 8)).astype(np.float32) for name in "ab"}
        y = {"label": self._reference(x)["label"] - self.mutant.ids}

        def take(rows: Any) -> None:
            for arrays in (x, y):
                for name, array in arrays.items():
                    arrays[name] = array[rows]

        exec(self.mutant.data, {"np": np, "x": x, "y": y, "take": take})  # noqa: S102  # the mutant's own
        arrays = {f"x/{k}": v for k, v in x.items()} | {f"y/{k}": v for k, v in y.items()}
        np.savez(store / "samples" / "samples.npz", ids=np.arange(SAMPLES), **arrays)
        np.savez(store / "reference" / "outputs.npz", **self._reference(x))
        exec(self.mutant.weights, {"np": np, "w": weights})  # noqa: S102
        np.save(store / "artifact" / "weights.npy", weights)
        interface = self.plugin.spec.interface({})
        text = Interface(inputs=interface.inputs, outputs=interface.outputs).model_dump_json()
        (store / "artifact" / "interface.json").write_text(text)
        (self.plugin.folder / "metrics.py").write_text(METRIC.format(metric=self.mutant.metric))

    def _reference(self, x: Any) -> Any:
        names: dict[str, Any] = {}
        exec(self.mutant.reference, names)  # noqa: S102
        return names["Session"](self.folder / "store" / "artifact", "CPU").run(x)

    def _put_session(self, version: Path) -> None:
        (version / session_file("onnx")).write_text(self.mutant.session)
        runtime = version / MODEL
        runtime.write_text(runtime.read_text(encoding="utf-8") + TOLD + self.mutant.runtime)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="those whose kind or name has one in it")
    wanted = parser.parse_args().only
    every = (*MUTANTS, *UNUSUAL)
    chosen = [m for m in every if any(part in f"{m.kind}: {m.name}" for part in wanted)]
    site, results = default_site(), dict[str, str]()
    with tempfile.TemporaryDirectory(prefix="servegrid-mutations-") as name:
        folder = Path(name)
        device_locks.LOCKS = folder / "locks"  # nothing here is about speed: it need not wait for others
        (folder / "repository").mkdir()
        with embedded.serve(site, folder / "repository", folder / "server.log") as running:
            for number, mutant in enumerate(chosen):
                start, here = time.monotonic(), folder / str(number)
                said = Trial(mutant, site, here, running).verdict()
                results[f"{mutant.kind}: {mutant.name}"] = said
                seconds = time.monotonic() - start
                print(f"{mutant.kind}: {mutant.name} ({seconds:.1f} s): {said[:200] or 'passed'}", flush=True)
                shutil.rmtree(here)
    return report(chosen, results)


def report(chosen: list[Mutant], results: dict[str, str]) -> int:
    """Print what was caught by kind and what was missed; 1 where a bar does not hold."""
    by_kind = collections.defaultdict(list)
    for mutant in chosen:
        by_kind[mutant.kind].append(bool(results[f"{mutant.kind}: {mutant.name}"]))
    wrong = {kind: found for kind, found in by_kind.items() if kind != "unusual"}
    for kind, found in wrong.items():
        print(f"{kind}: {sum(found)} of {len(found)} caught")
    caught, count = sum(map(sum, wrong.values())), sum(map(len, wrong.values()))
    missed = [name for name, said in results.items() if not said and not name.startswith("unusual")]
    failed = [name for name, said in results.items() if said and name.startswith("unusual")]
    print(f"{caught} of {count} mutants caught; missed: {', '.join(missed) or 'none'}")
    print(f"{len(failed)} of {len(by_kind['unusual'])} right models failed: {', '.join(failed) or 'none'}")
    return int(caught < BAR * count or bool(failed))


if __name__ == "__main__":
    sys.exit(main())
