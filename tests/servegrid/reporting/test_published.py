"""NVIDIA's published figures: models/ has NVIDIA's values, and the report joins them with our points."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import polars as pl
import pytest

from servegrid.campaign.results import MEASURED, MEASUREMENTS, Row, Writer
from servegrid.domain.errors import UserError
from servegrid.domain.root import ROOT
from servegrid.reporting import writing
from servegrid.reporting.published.compare import figures, join_published
from servegrid.reporting.published.document import parse, render
from servegrid.reporting.published.form import in_published_form
from servegrid.reporting.published.table import EXAMPLE, PARAMETER, read, sections

MODELS = ("bert_large_qa", "fastpitch", "nnunet", "resnet50", "wide_and_deep")
TABLES = read(ROOT / "models", list(MODELS))
SEEDS = os.environ.get("SERVEGRID_SEEDS")
DIGESTS = {
    "bert_large_qa": "12e49e2053d455eac5543f21d1ba9ffc4e441e63323c6b074d238e9ab4b1136b",
    "fastpitch": "8fd5006c6f384c521c911dcd7385304d17a46a1e83c11f4a2f1aa08cca79c53a",
    "nnunet": "bb1742e93443cfd75fdbaabcf99699fee8fc2e51d56b0156dc1a3224e414d023",
    "resnet50": "6fa1303a2dd0559f58b7da5089d7b7994c4b8e6734e8b92492b27454e6197a03",
    "wide_and_deep": "c711f4b07ffb5c77e9ca1677f45db7e70401710a05610be841fbe082ecf5d758",
}
"""SHA-256 of each published.csv as it was proven: the published documents, parsed anew, had the sections of
these files, all 718 rows equal (SERVEGRID_SEEDS), and docs/make_published.py made the files of them again to
the byte. Who makes them anew proves them so first."""
POINT: Row = {
    **dict.fromkeys(MEASURED, 1.23456),
    "cell": "bert_large_qa-full-onnx-fp16",
    "profile": "a30",
    "gpu": "NVIDIA A30",
    "model": "bert_large_qa",
    "variant": "full",
    "parameters": '{"max_seq_length": 384}',
    "format": "onnx",
    "precision": "fp16",
    "accelerator": "none",
    "triton_release": "21.10",
    "scenario": "offline",
    "batch": 8,
    "concurrency": 1,
    "throughput": 266.6,
    "max_batch_size": 16,
    "instances": 1,
    "cuda_graph": False,
    "backend": "native",
    "random_weights": False,
    "stable": True,
}


def points(*changes: Row) -> pl.DataFrame:
    return pl.DataFrame([POINT | change for change in changes], schema=MEASUREMENTS)


@pytest.mark.skipif(not SEEDS, reason="SERVEGRID_SEEDS does not name the folder of the published documents")
def test_documents_parse_to_the_generated_sections() -> None:
    parsed = [parse(path.read_text(encoding="utf-8")) for path in sorted(Path(SEEDS or "").glob("*.txt"))]
    generated = [parse(render(sections(table))) for table in TABLES.values()]
    assert sum(len(section.rows) for document in parsed for section in document) == 718
    by_title = [{(s.scenario, s.title): s for s in document} for document in (*parsed, *generated)]
    for document in by_title[: len(parsed)]:
        assert document in by_title[len(parsed) :]


def test_published_files_have_their_known_digests() -> None:
    found = {model: ROOT / "models" / model / "published.csv" for model in MODELS}
    assert {model: sha256(path.read_bytes()).hexdigest() for model, path in found.items()} == DIGESTS


def test_every_published_row_and_table_is_there() -> None:
    assert {model: table.height for model, table in TABLES.items()} == {
        "bert_large_qa": 46,
        "fastpitch": 160,
        "nnunet": 88,
        "resnet50": 96,
        "wide_and_deep": 328,
    }
    assert sum(len(sections(table)) for table in TABLES.values()) == 72
    for table in TABLES.values():
        assert parse(render(sections(table))) == sections(table)
        assert figures(table).height == table.height


def test_stated_parameters_are_kept() -> None:
    stated = {model: set(table.columns) for model, table in TABLES.items()}
    assert {EXAMPLE + "EXPORT_FORMAT", EXAMPLE + "EXPORT_PRECISION"} <= stated["bert_large_qa"]
    assert PARAMETER + "NVIDIA TensorRT Capture CUDA Graph" in stated["bert_large_qa"]
    assert {PARAMETER + "Device Kind", PARAMETER + "Export Format"} <= stated["wide_and_deep"]
    for model in ("fastpitch", "nnunet", "resnet50"):
        assert PARAMETER + "Triton Max Queue Delay" in stated[model]
        assert PARAMETER + "Triton Preferred Batch Sizes" in stated[model]


def test_row_of_the_same_card_is_compared_with_ours() -> None:
    (row,) = join_published(points({}), TABLES).rows(named=True)
    assert (row["published"], row["ratio"]) == (133.3, 2.0)
    assert row["differs"] == ""


def test_row_of_another_card_names_the_differences() -> None:
    ours = {"gpu": "NVIDIA H100 80GB HBM3", "triton_release": "24.10", "instances": 2, "backend": "hosted"}
    (row,) = join_published(points(ours), TABLES).rows(named=True)
    assert row["published"] == 272.0  # the fastest card's
    assert row["differs"] == (
        "card NVIDIA H100 80GB HBM3, theirs A100-80GB; Triton 24.10, theirs 21.10; instances 2, theirs 1; "
        "backend hosted, theirs native"
    )


def test_different_settings_that_both_state_are_named() -> None:
    serving: Row = {"max_batch_size": 16, "max_queue_delay_us": 500, "preferred_batch_sizes": [4, 8]}
    (bert,) = join_published(
        points(serving | {"parameters": '{"max_seq_length": 128}', "cuda_graph": True}), TABLES
    ).rows(named=True)
    assert bert["differs"] == "sequence length 128, theirs 384"  # neither delay nor graph is stated there
    engine: Row = {"format": "trt", "cuda_graph": True, "max_batch_size": 8}
    (bert,) = join_published(points(engine), TABLES).rows(named=True)
    assert bert["differs"] == "max batch size 8, theirs 16; CUDA graph Enabled, theirs Disabled"
    images: Row = {"model": "resnet50", "format": "tf-trt", "gpu": "NVIDIA T4", "triton_release": "20.12"}
    images |= {"parameters": "{}", "instances": 2, "max_queue_delay_us": 1, "max_batch_size": 128}
    for sizes, differs in (([64, 128], ""), ([], ""), ([128], "preferred batch sizes 128, theirs 64 128")):
        found = join_published(points(images | {"preferred_batch_sizes": sizes}), TABLES)
        assert found["differs"].to_list() == [differs]
    (other,) = join_published(points(images | serving), TABLES).rows(named=True)
    assert other["differs"] == (
        "max batch size 16, theirs 128; preferred batch sizes 4 8, theirs 64 128; "
        "max queue delay (us) 500, theirs 1"
    )


def test_what_the_tensors_were_and_how_they_came_differs() -> None:
    way: Row = {"protocol": "http", "shared_memory": "none", "input_data": "random"}
    (bert,) = join_published(points(way), TABLES).rows(named=True)
    assert bert["differs"] == "shared memory none, theirs system; input data random, theirs samples"
    clicks: Row = {
        "model": "wide_and_deep",
        "format": "trt",
        "batch": 2048,
        "scenario": "online",
        "concurrency": 8,
    }
    rows = join_published(points(clicks | {"protocol": "grpc"}, clicks | {"protocol": "http"}), TABLES)
    assert ["protocol grpc, theirs http" in differs for differs in rows["differs"]] == [True]
    images: Row = {"model": "resnet50", "format": "tf-trt", "gpu": "NVIDIA T4", "input_data": "samples"}
    (image,) = join_published(points(images), TABLES).rows(named=True)
    assert "input data samples, theirs random" in image["differs"]


@pytest.mark.parametrize("accelerator", ["none", "trt"])
def test_tf_trt_is_compared_whatever_its_accelerator_is_called(accelerator: str) -> None:
    images: Row = {"model": "resnet50", "format": "tf-trt", "gpu": "NVIDIA T4", "accelerator": accelerator}
    assert join_published(points(images), TABLES).height == 1


@pytest.mark.parametrize(
    "change", [{"variant": "tiny"}, {"batch": 7}, {"precision": "fp32"}, {"accelerator": "amp"}]
)
def test_point_that_was_not_published_is_left_out(change: Row) -> None:
    assert join_published(points(change), TABLES).is_empty()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("scenario", ["offline", "online"])
def test_our_section_has_every_parameter_and_column_of_the_published_one(model: str, scenario: str) -> None:
    theirs = [s for s in sections(TABLES[model]) if s.scenario.lower() == scenario] or sections(TABLES[model])
    cells = pl.DataFrame({"cell": ["c"], "profile": ["a30"], "served_metric": [0.914]})
    rows = points({"cell": "c", "model": model, "scenario": scenario}, {"cell": "c", "scenario": scenario})
    (ours,) = in_published_form(cells, rows, TABLES[model])
    assert ours.columns == theirs[0].columns
    assert set(ours.parameters) >= set(theirs[0].parameters)
    assert parse(render((ours,))) == (ours,)
    numbers = dict(zip(ours.columns, ours.rows[0], strict=True))
    name = next(name for name in ours.columns if name.lower().startswith("inferences"))
    assert float(numbers[name]) == 266.6
    latency = next(name for name in ours.columns if name.lower().startswith("p99"))
    digits = {"bert_large_qa": 1, "wide_and_deep": 2}.get(model, 3)
    assert numbers[latency] == f"{1.23456:.{digits}f}"


def test_points_are_ordered_unstable_ones_are_marked_and_rates_left_out() -> None:
    cells = pl.DataFrame({"cell": [POINT["cell"]], "profile": ["a30"], "served_metric": [0.914]})
    online = {"scenario": "online", "batch": 1}
    rows = points(
        online | {"concurrency": 16},
        online | {"concurrency": 2, "stable": False},
        online | {"concurrency": 4, "request_rate": 100.0},
        online | {"concurrency": 4},
    )
    (section,) = in_published_form(cells, rows, TABLES["bert_large_qa"])
    assert [row[1] for row in section.rows] == ["2", "4", "16"]
    assert [row[2] for row in section.rows] == ["266.6*", "266.6", "266.6"]
    assert section.title.endswith("* unstable point")


def test_the_metric_of_another_variant_names_its_data() -> None:
    cells = pl.DataFrame({"cell": [POINT["cell"]], "profile": ["a30"], "served_metric": [0.914]})
    (section,) = in_published_form(cells, points({"variant": "tiny"}), TABLES["bert_large_qa"])
    assert "tiny" in section.parameters["SQuAD v1.1 F1 Score"]


def test_sections_of_a_campaign_are_written(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "c")
    writer.append(
        "cell", {"cell": POINT["cell"], "profile": "a30", "model": "bert_large_qa", "served_metric": 0.914}
    )
    writer.append("measurement", POINT)
    text = writing.write_like_published(tmp_path / "c").read_text()
    assert "| SQuAD v1.1 F1 Score | 91.40 |" in text and "| 8 | 1 | 266.6 | 1.2 |" in text


def test_campaign_without_a_published_model_is_refused(tmp_path: Path) -> None:
    Writer(tmp_path / "c").append("cell", {"cell": "a", "model": "toy"})
    with pytest.raises(UserError, match=r"published\.csv"):
        writing.write_like_published(tmp_path / "c")
