"""Bar: of twenty A/A pairs of tiny BERT at most 1 is flagged; of twenty that were made slower at least 19.

    python bench/aa_pairs.py [--trials 20] [--cell bert_large_qa-tiny-onnx-fp32]

Each trial loads the cell twice and compares the two in interleaved runs, as `servegrid compare --run` does:
that is an A/A pair, of which both `regressed` and `improved` are false alarms, and it prints its noise floor.
Then the second is loaded again with a busy wait in its session: the larger of 5 % and three of those floors,
of the latency just measured. Exits with 1 when a bar does not hold.

Pairs and the length of a run are the defaults of `compare --run`. It asks at every point that both cells
have; this at one, batch 4 x 1, to be done in minutes. With one request in flight what is added to an
execution is what is added to the latency, as no queue stands between them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import tritonclient.grpc as triton

from flows.cell import build_cell, workplace
from servegrid.domain.values import Endpoint, Interface
from servegrid.formats import FORMATS
from servegrid.formats.repository import write_repository
from servegrid.formats.runtime_files import session_file
from servegrid.host.device_locks import device_lock
from servegrid.plan.options import SweepOptions
from servegrid.regression.interleaved import CandidateEndpoint, InterleavedJob, measure
from servegrid.regression.verdict import CellComparison, judge
from servegrid.servers import embedded
from servegrid.servers.control import unload
from servegrid.store.site import default_site
from tasks.planning import cell_by_name

BATCH, CONCURRENCY = 4, 1
LEAST_EFFECT, FLOORS = 0.05, 3
ALARMS = {"A/A": ("regressed", "improved"), "slower": ("regressed",)}
SLOWER = """

import time as _time

_as_it_was = Session.run


def _slower(self, inputs):
    outputs = _as_it_was(self, inputs)
    end = _time.perf_counter() + {seconds!r}
    while _time.perf_counter() < end:
        pass
    return outputs


Session.run = _slower
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--cell", default="bert_large_qa-tiny-onnx-fp32")
    asked = parser.parse_args()
    flagged = dict.fromkeys(ALARMS, 0)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        site = default_site().model_copy(update={"results": folder})
        entry, cell, left_out = cell_by_name(asked.cell, SweepOptions(), site)
        assert left_out is None, left_out
        at = workplace(entry.plugin, cell, site, "bench")
        built = build_cell(
            entry.plugin, cell, "bench", at, make=lambda stage, request, at: stage.fn(request, at)
        )
        artifact, samples = site.store.path(built.converted), site.store.path(built.samples)
        interface = Interface.model_validate_json((artifact / "interface.json").read_text(encoding="utf-8"))
        repository = folder / "repository"
        repository.mkdir()
        stack.enter_context(device_lock(cell.profile, exclusive=True))
        running = stack.enter_context(embedded.serve(site, repository, folder / "server.log"))
        client = stack.enter_context(triton.InferenceServerClient(running.grpc_url))

        def load(name: str, added_s: float = 0.0) -> CandidateEndpoint:
            """The cell under this name, in a process of its own; `added_s` is waited in each execution."""
            unload(client, name, timeout_s=60)
            write_repository(repository, name, cell.product.format, cell.dynamic, interface, artifact)
            hosted = FORMATS[cell.product.format].hosted
            assert hosted is not None
            session = repository / name / "1" / session_file(hosted.folder)
            if added_s:
                session.write_text(session.read_text() + SLOWER.format(seconds=added_s))
            client.load_model(name)
            endpoint = Endpoint(
                model=name, server="embedded", server_version=running.version, server_log=running.log,
                backend="hosted", load_s=0, first_request_ms=100,
                **running.model_dump(include={"grpc_url", "http_url", "shm_prefix"}),
            )  # fmt: skip
            return CandidateEndpoint(endpoint=endpoint, samples=samples)

        def compare(
            a: CandidateEndpoint, b: CandidateEndpoint, kind: str
        ) -> tuple[CellComparison, float, float]:
            """The comparison of the pair, its largest noise floor, and the latency of `a` in s."""
            order = InterleavedJob(a=a, b=b, batch=BATCH, concurrency=CONCURRENCY)
            found = CellComparison(
                cell=kind, judged=judge(measure(order, at.logs, kind).figures("online", order))
            )
            floors = [entry.interval.floor for entry in found.judged if entry.interval]
            flagged[kind] += found.change in ALARMS[kind]
            texts = (f"{entry.figures.metric} {entry.text}" for entry in found.judged)
            print(f"  {kind}: {'; '.join(texts)}; noise floor {max(floors):.1%}: {found.change}", flush=True)
            return found, max(floors), found.judged[1].a / 1e3

        for trial in range(asked.trials):
            print(f"trial {trial + 1}", flush=True)
            a = load("a")
            _, floor, latency_s = compare(a, load("b"), "A/A")
            effect = max(LEAST_EFFECT, FLOORS * floor)
            print(f"  adding {effect:.1%} of {latency_s * 1e3:.2f} ms")
            compare(a, load("b", effect * latency_s), "slower")
    bars = (flagged["A/A"] <= asked.trials // 20, flagged["slower"] >= asked.trials - asked.trials // 20)
    for kind, holds, bar in zip(flagged, bars, ("at most 1 in 20", "at least 19 in 20"), strict=True):
        verdict = "PASS" if holds else "FAIL"
        print(f"{kind}: {flagged[kind]} of {asked.trials} flagged (bar: {bar}): {verdict}")
    return int(not all(bars))


if __name__ == "__main__":
    sys.exit(main())
