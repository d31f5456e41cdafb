"""`full` of each model.yaml holds what NVIDIA published for it, but for a table of deviations (ADR 14)."""

from __future__ import annotations

import csv
import re
from typing import Any

import pytest

from servegrid.domain.root import ROOT
from servegrid.domain.spec import ModelSpec
from servegrid.plan.models import load_model

COLUMNS = {
    "serving.max_batch_size": ("max batch size", "max_batch_size", "max-batch-size"),
    "serving.instances": ("number of model instances", "triton_gpu_engine_count"),
    "serving.max_queue_delay_us": ("triton max queue delay", "triton_max_queue_delay"),
    "serving.preferred_batch_sizes": (
        *("triton preferred batch sizes", "triton_preferred_batch_sizes", "preferred-batch-sizes"),
    ),
    "serving.cuda_graph": ("nvidia tensorrt capture cuda graph", "tensorrt-capture-cuda-graph"),
    "serving.load_timeout_s": ("load-model-timeout-s",),
    "parameters.max_seq_length": ("max seq length",),
    "parameters.seq": ("sequence_length",),
    "convert.workspace_bytes": ("max-workspace-size",),
    "opset": ("onnx-opsets",),
}
"""Field of a variant -> the names that it has among the parameters and examples of published.csv."""
POINTS = {"offline.batch_sizes": ("batch", "client batch size"), "online.client_batch": ("batch",)}
POINTS |= {"online.concurrency": ("concurrency", "concurrent client requests")}

STATED: dict[str, dict[str, Any]] = {
    "bert_large_qa": {
        "opset": 13,
        "convert.workspace_bytes": 8589934592,
        "convert.tolerance": (5.0, 5.0),
        "convert.shapes": (16, 16, 16),
        "serving.load_timeout_s": 100,
        "offline.shared_memory": "system",
    },
    "fastpitch": {"opset": 12, "convert.workspace_bytes": 512, "serving.load_timeout_s": 100},
    "nnunet": {
        "opset": 12,
        "convert.workspace_bytes": 4294967296,
        "serving.cuda_graph": False,
        "serving.protocol": "http",
        "offline.shared_memory": "cuda",
        "online.shared_memory": "cuda",
    },
    "resnet50": {
        "opset": 12,
        "convert.workspace_bytes": 4294967296,
        "serving.cuda_graph": False,
        "serving.protocol": "http",
        "offline.shared_memory": "none",
        "online.shared_memory": "none",
        "samples": 256,
    },
    "wide_and_deep": {
        "convert.tolerance": (0.015, 12.0),
        "serving.protocol": "http",
        "offline.shared_memory": "system",
        "online.shared_memory": "none",
        "offline.request_count": 100,
        "online.request_count": 500,
    },
}
"""Values that only the published READMEs and scripts have. Shapes: the batch of min, opt and max."""

DEVIATIONS = {
    ("bert_large_qa", "serving.preferred_batch_sizes"): "published for static batching, where none acts",
    ("bert_large_qa", "serving.cuda_graph"): "a graph a batch size is what makes hosted ONNX fast",
    ("bert_large_qa", "convert.shapes"): "one engine serves every batch size; published: one engine a size",
    ("fastpitch", "convert.workspace_bytes"): "512, without a unit, is taken for MiB",
    ("nnunet", "offline.shared_memory"): "system runs without a GPU, too; --shared-memory cuda",
    ("nnunet", "online.shared_memory"): "system runs without a GPU, too; --shared-memory cuda",
    ("nnunet", "serving.protocol"): "gRPC everywhere; --protocol http",
    ("resnet50", "serving.cuda_graph"): "as for BERT",
    ("resnet50", "serving.protocol"): "gRPC everywhere; --protocol http",
    ("wide_and_deep", "serving.protocol"): "gRPC everywhere; --protocol http",
}


def rows(model: str) -> list[dict[str, str]]:
    with (ROOT / "models" / model / "published.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def numbers(text: str) -> tuple[int, ...]:
    """`4 8`, `128.0`, `gpu=2`, `Enabled`."""
    if text.lower() in ("enabled", "yes"):
        return (1,)
    return (0,) if text == "Disabled" else tuple(int(float(n)) for n in re.findall(r"\d+(?:\.\d+)?", text))


def published(model: str) -> dict[str, Any]:
    """Field -> the one value that every row gives it; for points, all that any row has."""
    found: dict[str, set[tuple[int, ...]]] = {}
    points: dict[str, set[int]] = {}
    for row in rows(model):
        for column, text in row.items():
            kind, _, name = column.partition(": ")
            if not text:
                continue
            for field, names in COLUMNS.items():
                if kind in ("parameter", "example") and name.lower() in names:
                    found.setdefault(field, set()).add(numbers(text))
            for field, names in POINTS.items():
                if kind == "column" and name.lower() in names and field.startswith(row["scenario"]):
                    points.setdefault(field, set()).update(numbers(text))
    for field, values in found.items():
        assert len(values) == 1, (model, field, values)
    return {field: values.pop() for field, values in found.items()} | {
        field: tuple(sorted(values)) for field, values in points.items()
    }


def ours(spec: ModelSpec, field: str) -> Any:
    full = spec.variants["full"]
    if field == "opset":
        return spec.opset
    if field == "convert.shapes":
        (batches,) = {(s.min[0], s.opt[0], s.max[0]) for s in full.convert.shapes.values()}
        return batches
    value: Any = full
    for name in field.split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return (value.absolute, value.relative) if field == "convert.tolerance" else value


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("model", STATED)
def test_full_is_as_published_but_for_the_deviations(model: str) -> None:
    spec = load_model(ROOT / "models", model).spec
    stated = published(model) | STATED[model]
    assert {"serving.max_batch_size", "serving.instances", "offline.batch_sizes"} < set(stated)
    differ = {field for field, value in stated.items() if as_tuple(ours(spec, field)) != as_tuple(value)}
    assert differ == {field for name, field in DEVIATIONS if name == model}


@pytest.mark.parametrize("model", STATED)
def test_every_published_kind_of_cell_is_in_the_matrix(model: str) -> None:
    spec = load_model(ROOT / "models", model).spec
    for format_, precision, accelerator in {
        (r["format"], r["precision"], r["accelerator"]) for r in rows(model)
    }:
        listed: Any = spec.formats[format_]  # type: ignore[index]  # a KeyError is what the test is about
        assert precision in listed.precisions
        # On tf-trt `trt` is a label, which some of the published tables leave out.
        assert accelerator in listed.accelerators or format_ == "tf-trt"


def test_the_decision_names_every_deviation() -> None:
    (page,) = (ROOT / "docs" / "adr").glob("0014-*.md")
    text = page.read_text(encoding="utf-8")
    for model, field in DEVIATIONS:
        assert re.search(rf"\| `{model}` \|[^|]*`{re.escape(field)}`", text), (model, field)
