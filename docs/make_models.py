"""Writes docs/models/: a page a model, of model.yaml, published.csv and measurements.parquet.

Run: python docs/make_models.py
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import polars as pl

from servegrid.domain.spec import ModelSpec, Variant
from servegrid.plan.models import load_model
from servegrid.reporting.published.compare import figures

ROOT = Path(__file__).parents[1]
POINT = ("scenario", "format", "precision", "batch", "concurrency")


class Notes(NamedTuple):
    """What no table has of a model: its network, its metric, and known issues of ours."""

    network: str
    metric: str
    issues: tuple[str, ...]


NOTES = {
    "bert_large_qa": Notes(
        "a transformer of 24 layers, 16 heads and 1024 units; `tiny` has 2 layers, 4 heads and 64 units",
        "F1 of the words of the best answer, the mean over all questions; `exact_match` is reported too",
        ("One engine or graph serves every batch size; the published deployment built one for each.",),
    ),
    "fastpitch": Notes(
        "6 transformer layers before and 6 after durations and pitch are predicted; `tiny` has 2 and 2",
        "mean absolute difference of the log-mels, frame by frame, to the recording's",
        (
            "The threshold of `full` is an estimate: no published checkpoint was at hand.",
            "Texts with digits are left out: nothing here writes numbers as words.",
            "The pitch of a recording is not computed, because the metric compares mels only.",
        ),
    ),
    "nnunet": Notes(
        "a 3D U-Net of 6 levels and 32 filters; `tiny` has 3 levels and 8 filters",
        "Dice of each class over the held-out cases, then the mean of the classes",
        (
            "The metric is of each case's middle, 128 x 128 x 128; the published Dice is of whole volumes.",
            "`prepare` refuses voxels that are not 1 mm: task 1 needs no resampling, and none is done.",
        ),
    ),
    "resnet50": Notes(
        "ResNet-50 v1.5, 224 x 224 pixels, 1001 outputs; `tiny` is a small network of 32 x 32 pixels",
        "share of images whose class is the likeliest; `top5` is reported too",
        (
            "TF-TRT needs an environment or image that the profile names; it has never run here.",
            "An Estimator is not a model here: [your-model.md](../your-model.md) says how to export it.",
        ),
    ),
    "wide_and_deep": Notes(
        "a linear part and 5 hidden layers of 1024 units over 16 embedding tables; `tiny` has 2 of 64",
        "mean average precision of the first 12 ads of each display; `auc` is reported too",
        (
            "`full` reads the parquet files of the published preprocessing, not yet Outbrain's CSV tables.",
            "The feature set is the published network's: another one needs a changed copy of the folder.",
        ),
    ),
}


PAGE = """# {name}: {description}

What is this model, how do I measure it, and how fast is it? It replaces NVIDIA's published deployment,
DeepLearningExamples, {title}. `docs/make_models.py` makes this page.

## Network, data, metric

- network: {network}
{data}
- metric: {metric}

## Formats

| format | export | precisions | accelerators |
| --- | --- | --- | --- |
{formats}

## Commands

`tiny` needs no file and no GPU:

```
make install
. .venv/bin/activate
servegrid sweep --model {name}
servegrid report
```

`full` on an A100, with the published points:

```
servegrid sources {name} --variant full
servegrid sweep --model {name} --variant full --profile a100-80gb --fixed-points
servegrid report
```

## Results

Our figures are of random weights, the highest of all campaigns in `docs/measurements.parquet`;
[gpu-results.md](../gpu-results.md) has their conditions. The published ones are the best of an A100 at the
same precision, batch and concurrency, with their format; all {rows} published rows are in
`models/{name}/published.csv`.

{results}

## Known issues

The published document names none. Ours:

{issues}
- [ADR 14](../adr/0014-where-full-departs-from-the-published-values.md) lists the differences from the
  published values.

## Changes

The section Models of [CHANGELOG.md](../../CHANGELOG.md) lists them.
"""


def page(spec: ModelSpec, published: pl.DataFrame, measured: pl.DataFrame) -> str:
    """The page of a model; tables: the text of its published.csv, and the measurements of all models."""
    notes, full = NOTES[spec.name], spec.variants["full"]
    return PAGE.format(
        name=spec.name,
        description=spec.description,
        title=published["source"][0].removeprefix("NVIDIA DeepLearningExamples, "),
        network=notes.network,
        data=_data(full),
        metric=_metric(full, notes),
        formats=_formats(spec),
        rows=published.height,
        results=_results(spec.name, figures(published), measured),
        issues="\n".join(f"- {issue}" for issue in notes.issues),
    )


def _data(full: Variant) -> str:
    rows = [f"  - `{s.file}`: {s.content}; {s.published}" for s in full.sources]
    return f"- files of `full`, {full.samples} samples:\n" + "\n".join(rows)


def _metric(full: Variant, notes: Notes) -> str:
    metric = full.metric
    assert metric is not None
    bound = "at most" if metric.better == "lower" else "at least"
    return f"`{metric.name}`, {notes.metric}; {bound} {metric.threshold} for `full`"


def _formats(spec: ModelSpec) -> str:
    lines = []
    for name, of in spec.formats.items():
        precisions = f"unsupported: {of.unsupported}" if of.unsupported else ", ".join(of.precisions)
        lines.append(f"| {name} | {of.export} | {precisions} | {', '.join(of.accelerators)} |")
    return "\n".join(lines)


def _results(model: str, published: pl.DataFrame, measured: pl.DataFrame) -> str:
    """Our best figure of each point, and the best published one of an A100 at the same point."""
    of_model = pl.col("model").is_in([model, f"{model}_onnx"]) & pl.col("variant").is_in(["full", "file"])
    keys = ["gpu", *POINT]
    ours = measured.filter(of_model).sort("throughput").group_by(keys).agg(pl.last("throughput", "p99_ms"))
    theirs = published.filter(pl.col("card").str.starts_with("A100")).sort("published")
    best = theirs.group_by("scenario", "precision", "batch", "concurrency").agg(
        pl.last("published", "published_p99_ms"), pl.last("format").alias("published_format")
    )
    rows = ours.join(best, on=["scenario", "precision", "batch", "concurrency"], how="left").sort(keys)
    head = ("GPU", *POINT, "inferences/s", "p99 ms", "published on an A100", "p99 ms")
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for row in rows.iter_rows(named=True):
        figure = f"{row['published']:.1f} ({row['published_format']})" if row["published"] else ""
        p99 = f"{row['published_p99_ms']:.2f}" if row["published"] else ""
        point = " | ".join(str(row[key]) for key in keys)
        lines.append(f"| {point} | {row['throughput']:.1f} | {row['p99_ms']:.2f} | {figure} | {p99} |")
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """File name -> page."""
    measured = pl.read_parquet(ROOT / "docs" / "measurements.parquet")
    return {
        f"{model}.md": page(
            load_model(ROOT / "models", model).spec,
            pl.read_csv(ROOT / "models" / model / "published.csv", infer_schema=False),
            measured,
        )
        for model in NOTES
    }


if __name__ == "__main__":
    for name, text in pages().items():
        (ROOT / "docs" / "models" / name).write_text(text, encoding="utf-8")
