"""Steps of the five models show none of other libraries' warnings."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from servegrid.formats import FORMATS
from servegrid.store.build import run_step
from tasks import convert, export, reference

pytestmark = pytest.mark.check
NOISE = ("warning", "deprecated", "loss_type", "onednn", "absl")

EXPORTS = [
    ("bert_large_qa", "ts-trace"),
    ("bert_large_qa", "onnx"),
    ("fastpitch", "ts-trace"),
    ("nnunet", "ts-script"),
    ("nnunet", "onnx"),
    ("resnet50", "onnx"),
    ("wide_and_deep", "tf-savedmodel"),
]


@pytest.fixture
def shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Any:
    """`shown(tiny, request)`: the lines that a step shows when it runs, whether the store has its artifact or
    not."""

    def run(tiny: Any, request: Any) -> list[str]:
        (tmp_path / "out").mkdir()
        at = tiny.at.model_copy(update={"logs": tmp_path / "logs"})
        with caplog.at_level(logging.INFO, "servegrid"):
            run_step(
                request.stage, fields=request.fields, inputs=request.inputs, output=tmp_path / "out", at=at
            )
        return [record.getMessage() for record in caplog.records]

    return run


def noise(lines: list[str]) -> list[str]:
    return [line for line in lines if any(word in line.lower() for word in NOISE)]


@pytest.mark.parametrize(("model", "format_"), EXPORTS)
def test_export_shows_no_warning(tiny_cell: Any, shown: Any, model: str, format_: str) -> None:
    tiny = tiny_cell(model, format_)
    lines = shown(tiny, export.request(tiny.plugin, tiny.cell.product, tiny.prepared))
    assert lines
    assert noise(lines) == []


@pytest.mark.parametrize(("model", "format_"), [("wide_and_deep", "onnx"), ("bert_large_qa", "ts-trace")])
def test_reference_shows_no_warning(tiny_cell: Any, shown: Any, model: str, format_: str) -> None:
    tiny = tiny_cell(model, format_)
    lines = shown(tiny, reference.request(tiny.plugin, tiny.cell, tiny.prepared, tiny.samples))
    assert any("one sample" in line for line in lines)
    assert noise(lines) == []


@pytest.mark.parametrize(
    ("model", "format_", "precision"),
    [("bert_large_qa", "onnx", "fp32"), ("wide_and_deep", "tf-savedmodel", "fp32")],
)
def test_conversion_shows_no_warning(
    tiny_cell: Any, shown: Any, model: str, format_: str, precision: str
) -> None:
    tiny = tiny_cell(model, format_, precision)
    lines = shown(tiny, convert.request(tiny.plugin, tiny.cell.product, tiny.exported))
    assert any("from the export" in line for line in lines)
    assert noise(lines) == []


@pytest.mark.skipif(not all(map(shutil.which, FORMATS["aoti"].tools)), reason="no g++ to compile with")
def test_compiling_shows_no_warning_and_leaves_nothing(
    tiny_cell: Any, shown: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = tiny_cell("nnunet", "aoti")
    request = convert.request(tiny.plugin, tiny.cell.product, tiny.exported)
    for name in ("HOME", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    assert noise(shown(tiny, request)) == []
    assert [path for name in ("HOME", "TMPDIR") for path in (tmp_path / name).rglob("*")] == []
