"""Every tiny model's engine, in fp32, fp16 and int8, built by TensorRT-RTX, which needs no GPU for that."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from flows.cell import convert_product
from servegrid.domain.errors import UnsupportedError
from servegrid.domain.values import NOT_RUN, Interface
from servegrid.formats import base
from servegrid.formats.trt import format as trt
from servegrid.formats.trt.fields import TrtJob
from servegrid.host.cards import card
from servegrid.host.environment import missing
from servegrid.store.build import build
from servegrid.store.job import Job
from servegrid.store.store import BuildRequest
from tasks import convert
from tasks.configure import configure

MODELS = ("bert_large_qa", "fastpitch", "nnunet", "resnet50", "wide_and_deep")
PRECISIONS = ("fp32", "fp16", "int8")

BUILD = """
import sys
from servegrid.formats.trt.convert import convert_tensorrt
from pathlib import Path
from servegrid.frameworks.steps import read_job
for path in sys.argv[1:]:
    convert_tensorrt(read_job(Path(path)))
"""

ABSENT = missing(trt.TRT.libraries)

pytestmark = [
    pytest.mark.check,
    pytest.mark.skipif(bool(ABSENT), reason=f"not installed: {ABSENT}"),
    pytest.mark.skipif(
        trt.library() == "tensorrt" and not card(), reason="TensorRT builds an engine on its card only"
    ),
]


def engine_request(tiny: Any) -> BuildRequest:
    """The request that converts the tiny model's ONNX to an engine."""
    engine = tiny.cell.product.model_copy(update={"format": "trt"})
    graph = convert.source(engine)
    assert graph is not None

    def make(_: Any, request: Any, at: Any) -> Any:
        return build(request, at)

    source = convert_product(tiny.plugin, graph, tiny.prepared, tiny.exported, tiny.at, make)
    return convert.request(tiny.plugin, engine, source)


@pytest.fixture(scope="module")
def engines(
    tiny_cell: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], tuple[TrtJob, Path]]:
    """The job and the folder of every engine; one process builds them all."""
    jobs = {}
    for name, precision in product(MODELS, PRECISIONS):
        tiny = tiny_cell(name, precision=precision)
        request, folder = engine_request(tiny), tmp_path_factory.mktemp(f"{name}-{precision}")
        sources = {key: tiny.folder(ref) for key, ref in request.inputs.items()}
        job = Job(
            step=request.stage, fields=request.fields, inputs=sources, plugin=tiny.at.plugin, output=folder
        )
        (folder.parent / f"{folder.name}.json").write_text(job.model_dump_json())
        jobs[name, precision] = job, folder
    files = [str(folder.parent / f"{folder.name}.json") for _, folder in jobs.values()]
    done = subprocess.run(
        [sys.executable, "-c", BUILD, *files], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return jobs


@pytest.mark.parametrize(("name", "precision"), list(product(MODELS, PRECISIONS)))
def test_engine_is_built_and_has_the_interface_of_its_graph(
    name: str, precision: str, engines: dict[Any, Any]
) -> None:
    job, folder = engines[name, precision]
    assert (folder / "model.plan").stat().st_size > 100_000
    found = Interface.model_validate_json((folder / "interface.json").read_text())
    graph = Interface.model_validate_json((job.inputs["source"] / "interface.json").read_text())
    assert (found.inputs, {t.name for t in found.outputs}) == (graph.inputs, {t.name for t in graph.outputs})
    floats = {t.dtype for t in (*found.inputs, *found.outputs) if t.dtype.startswith("float")}
    assert floats == {"float16" if precision == "fp16" else "float32"}


@pytest.mark.parametrize("name", MODELS)
def test_engine_has_its_library_shapes_and_cards(name: str, engines: dict[Any, Any]) -> None:
    _, folder = engines[name, "fp32"]
    engine = json.loads((folder / "engine.json").read_text())
    assert engine["library"] == trt.library()
    assert "TF32" not in engine["flags"]
    if engine["library"] == "tensorrt-rtx":
        assert {"8.0", "8.6", "8.9", "12.0"} <= set(engine["compute_capabilities"])
        assert not {"7.5", "9.0"} & set(engine["compute_capabilities"])
    interface = Interface.model_validate_json((folder / "interface.json").read_text())
    ranges = {end: [1, 8, 8][i] for i, end in enumerate(("min", "opt", "max"))}
    expected = {t.name: {e: [batch, *t.shape[1:]] for e, batch in ranges.items()} for t in interface.inputs}
    assert engine["shapes"] == expected


@pytest.mark.gpu
@pytest.mark.skipif(not card(), reason="needs an NVIDIA GPU that the installed TensorRT runs on")
def test_engine_answers_its_exports_example_on_the_card(engines: dict[Any, Any]) -> None:
    """FastPitch's mel has a length that depends on the data."""
    for _, folder in engines.values():
        margins = json.loads((folder / "margins.json").read_text())
        assert margins and all(margin["excess"] == 0 for margin in margins)


@pytest.mark.skipif(bool(card()), reason="here is a card, which may run them")
def test_engine_that_was_not_run_is_marked_and_not_served(
    engines: dict[Any, Any], tiny_cell: Callable[..., Any], tmp_path: Path
) -> None:
    for _, folder in engines.values():
        assert not (folder / "margins.json").exists()
        assert (folder / NOT_RUN).read_text().endswith("; this host has none")
    tiny = tiny_cell("bert_large_qa")
    converted = build(engine_request(tiny), tiny.at)
    assert sorted(p.name for p in tiny.folder(converted).iterdir()) == [
        "engine.json", "example.npz", "interface.json", "model.plan", NOT_RUN,
    ]  # fmt: skip
    engine = tiny.cell.product.model_copy(update={"format": "trt"})
    cell = tiny.cell.model_copy(update={"product": engine})
    with pytest.raises(UnsupportedError, match=r"compute capability 8\.0"):
        configure.fn(cell, converted, tmp_path, tiny.at)


def test_key_of_an_engine_holds_all_that_it_depends_on(
    tiny_cell: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = tiny_cell("bert_large_qa")
    first = engine_request(tiny)
    assert set(first.libraries) == {"tensorrt", "torch"}
    assert {"library", "shapes", "workspace_bytes", "card"} <= set(type(first.fields).model_fields)
    assert engine_request(tiny).key == first.key
    keys = {first.key}
    for found in ({"compute_capability": "8.6", "driver": "1"}, {"compute_capability": "8.6", "driver": "2"}):
        monkeypatch.setattr(base, "card", lambda found=found: found)
        keys.add(engine_request(tiny).key)
    monkeypatch.setattr(trt, "provider", lambda name: "tensorrt")
    keys.add(engine_request(tiny).key)
    assert len(keys) == 4
