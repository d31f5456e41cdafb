"""The metric of the options: which output, which labels, and what is refused, in one line that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servegrid.domain.errors import UserError
from servegrid.domain.plugins import Plugin
from servegrid.domain.spec import ModelSpec
from servegrid.domain.tolerances import Metric
from servegrid.plan.options import SweepOptions
from servegrid.sources.metric import with_metric

LABELS = np.arange(16) % 4


@pytest.fixture
def plugin(model_data: dict[str, Any], tmp_path: Path) -> Plugin:
    model_data["outputs"] = [{"name": "y", "dtype": "float32", "shape": ["batch", 4]}]
    del model_data["variants"]["tiny"]["metric"]
    return Plugin(spec=ModelSpec.model_validate(model_data), folder=tmp_path)


def chosen(plugin: Plugin, labels: Path | None, **given: Any) -> Metric:
    options = {"onnx": "net.onnx", "samples": "samples.npz", "metric": "accuracy"} | given
    if labels is not None:
        options["labels"] = str(labels)
    metric = with_metric(plugin, SweepOptions.model_validate(options), "tiny").spec.variants["tiny"].metric
    assert metric is not None
    return metric


def npz(path: Path, **arrays: Any) -> Path:
    np.savez(path / "labels.npz", **arrays)
    return path / "labels.npz"


def csv(path: Path, text: str) -> Path:
    (path / "labels.csv").write_text(text)
    return path / "labels.csv"


def test_labels_of_a_file_become_the_metric_of_the_only_output(plugin: Plugin, tmp_path: Path) -> None:
    metric = chosen(plugin, npz(tmp_path, anything=LABELS))
    assert (metric.name, metric.output, metric.threshold) == ("accuracy", "y", None)
    assert metric.labels == str(tmp_path / "labels.npz")
    assert not metric.made_up
    column = csv(tmp_path, "label\n" + "\n".join(map(str, LABELS)))
    bounded = chosen(plugin, column, threshold=0.9, drop=0.05)
    assert (bounded.threshold, set(bounded.drop.values())) == (0.9, {0.05})


def test_the_drop_of_an_error_follows_the_spread_of_the_labels(plugin: Plugin, tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(16, 4)) * 1000
    metric = chosen(plugin, npz(tmp_path, v=values), metric="neg_mean_absolute_error")
    assert metric.drop["fp32"] == pytest.approx(values.std() / 1000)


@pytest.mark.parametrize("name", ["agreement", "cosine"])
def test_without_labels_the_framework_is_the_reference_and_random_samples_are_named(
    plugin: Plugin, name: str
) -> None:
    assert chosen(plugin, None, metric=name).threshold is not None
    assert not chosen(plugin, None, metric=name).made_up
    assert chosen(plugin, None, metric=name, samples=None).made_up


def test_of_several_outputs_one_must_be_named(plugin: Plugin, tmp_path: Path) -> None:
    two = (*plugin.spec.outputs, plugin.spec.outputs[0].model_copy(update={"name": "z:0"}))
    plugin = plugin.model_copy(update={"spec": plugin.spec.model_copy(update={"outputs": two})})
    labels = npz(tmp_path, a=LABELS)
    with pytest.raises(UserError, match=r"accuracy:OUTPUT.*y, z:0"):
        chosen(plugin, labels)
    with pytest.raises(UserError, match=r"accuracy:x.*z:0"):
        chosen(plugin, labels, metric="accuracy:x")
    assert chosen(plugin, labels, metric="accuracy:z:0").output == "z:0"


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ({"a": LABELS[:15]}, ("15 labels", "16 samples")),
        ({"a": np.tile(LABELS, 2)}, ("32 labels", "16 samples")),
        ({"a": LABELS + 1}, ("label 3 is 4", "'y'", "0 to 3")),
        ({"a": LABELS - 1}, ("label 0 is -1", "'y'", "0 to 3")),
        ({"a": LABELS / 3}, ("label 1 ", "accuracy")),
        ({"a": np.where(LABELS, LABELS, np.nan)}, ("label 0 ", "finite")),
        ({"a": np.array(["cat", "dog"] * 8)}, ("<U3", "numbers")),
        ({"a": LABELS, "b": LABELS}, ("a, b", "'y'")),
        ({"a": np.zeros((16, 3, 5), int)}, ("[16, 3, 5]", "'y'", "[-1, 4]")),
        ({"a": np.array(3)}, ("one number",)),
        ({"a": np.array([{}] * 16)}, ("labels.npz",)),
    ],
)
def test_wrong_labels_are_one_line(
    plugin: Plugin, tmp_path: Path, arrays: dict[str, Any], named: tuple[str, ...]
) -> None:
    refused(plugin, npz(tmp_path, **arrays), *named)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("\n".join(map(str, LABELS)), ("15 labels",)),
        ("label\n" + "cat\n" * 16, ("'label'", "String")),
        ("a,b\n" + "1,\n" * 16, ("'b'",)),
        ("", ("labels.csv",)),
    ],
)
def test_wrong_columns_are_one_line(
    plugin: Plugin, tmp_path: Path, text: str, named: tuple[str, ...]
) -> None:
    refused(plugin, csv(tmp_path, text), *named)


def test_a_file_that_is_missing_or_of_another_kind_is_one_line(plugin: Plugin, tmp_path: Path) -> None:
    refused(plugin, tmp_path / "none.npz", "none.npz")
    (tmp_path / "labels.txt").write_text("1")
    refused(plugin, tmp_path / "labels.txt", ".npz", ".csv")
    (tmp_path / "labels.npz").write_text("<!doctype html>")
    refused(plugin, tmp_path / "labels.npz", "labels.npz")


def test_a_metric_that_does_not_fit_its_labels_or_folder_is_one_line(plugin: Plugin, tmp_path: Path) -> None:
    labels = npz(tmp_path, a=LABELS)
    refused(plugin, labels, "'accurasy'", "accuracy", metric="accurasy")
    refused(plugin, labels, "agreement", "--labels", metric="agreement")
    refused(plugin, None, "accuracy", "--labels", "agreement")
    refused(plugin, labels, "[16]", "[-1, 4]", metric="r2")
    (tmp_path / "metrics.py").touch()
    refused(plugin, labels, "metrics.py")


def refused(plugin: Plugin, labels: Path | None, *named: str, **given: Any) -> None:
    with pytest.raises(UserError) as error:
        chosen(plugin, labels, **given)
    assert "\n" not in str(error.value)
    assert [part for part in named if part not in str(error.value)] == []
