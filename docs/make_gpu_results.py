"""Writes docs/gpu-results.md from docs/measurements.parquet:  python docs/make_gpu_results.py"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import polars as pl

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "measurements.parquet"
HEAD = """# Results on a GPU

How fast are the five models on a GPU, and how near the limit? Offline, BERT-large, ResNet-50, nnU-Net and
FastPitch reach their bars on an H200: ResNet-50 at batch 1 and 2 only with cores awake (out of idle states,
by the removed option `--cores-awake`: [ADR 21](adr/0021-no-option-against-idle-states.md)), BERT-large at
batch 1 reliably only so. Online, BERT-large and FastPitch reach theirs, nnU-Net only at 3 clients,
ResNet-50 not. Wide & Deep stays at half of its bars.

The bars were set for an H100. Nearly all figures were measured on an H200 (141 GB), the same processor with
more and faster memory. The host was a virtual machine with 16 cores of an Intel Xeon, driver 580.159.04,
Python 3.12, torch 2.11 with CUDA 13.0, onnxruntime-gpu 1.31.1 (the wheel from PyPI: without the device code
of cards other than sm_90 and without its TensorRT provider), Triton 2.51, perf_analyzer 2.60, hosted backend.
Weights are random, so no metric gates a cell: the verdict is `measured`.

- **figure**: the highest throughput of all campaigns with these cores, in inferences/s, and its p99 in ms.
- **campaigns**: of the campaigns that measured the point, the number that reached the bar, with any setting
  and any runtime; then their lowest figure.
- **share**: the figure divided by the roofline's limit ([measuring.md](measuring.md)); empty if the
  operations were not counted.
- **no.**: the command of the figure, with its date, its machine and the commit that recorded the rows. Equal
  names of a machine mean the same machine.
- A bar of "2 x" is twice the best row that NVIDIA published for an A100 at the same batch and concurrency.

`docs/measurements.parquet` has every row and column: POINTS points of CAMPAIGNS campaigns. The experiments
are in [experiments](experiments/README.md). `docs/make_gpu_results.py` makes this page.
"""


class Bar(NamedTuple):
    """A point of a model and the throughput that it should reach."""

    scenario: str
    batch: int
    concurrency: int
    wanted: float
    text: str


BERT = (
    Bar("offline", 1, 1, 480, "480/s"),
    Bar("offline", 16, 1, 1600, "1600/s"),
    Bar("offline", 16, 1, 1750, "1750/s, beyond the bar"),
    Bar("online", 1, 64, 1450, "1450/s"),
)
MODELS = {
    "bert_large_qa": "BERT-large, 384 tokens, fp16",
    "resnet50_onnx": "ResNet-50 v1.5, from its ONNX, fp16",
    "nnunet": "nnU-Net, 128 x 128 x 128, fp16",
    "fastpitch": "FastPitch, fp16, two instances",
    "wide_and_deep_onnx": "Wide & Deep, from its ONNX, fp16",
}
GROUP = ("gpu", "cores_awake")
"""The columns that are equal for all figures of one line."""


def published(model: str) -> list[Bar]:
    """Twice the best row of an A100 at each point that NVIDIA published."""
    path = ROOT / "models" / model.removesuffix("_onnx") / "published.csv"
    table = pl.read_csv(path, infer_schema_length=None)
    found = {name.lower().removeprefix("column: "): pl.col(name) for name in table.columns}
    batch = found.get("batch", found.get("client batch size"))
    clients = found.get("concurrency", found.get("concurrent client requests"))
    assert batch is not None
    assert clients is not None
    points = table.filter(pl.col("card").str.starts_with("A100")).select(
        "scenario", batch.fill_null(1).alias("batch"), clients.fill_null(1).alias("clients"),
        best=found["inferences/second"],
    )  # fmt: skip
    best = points.group_by("scenario", "batch", "clients").agg(pl.col("best").max())
    rows = best.sort("scenario", "batch", "clients").iter_rows()
    return [Bar(s, int(b), int(c), 2 * x, f"2 x {number(x)}") for s, b, c, x in rows]


def number(value: float) -> str:
    """A throughput with at most one digit after the point."""
    return f"{value:.{int(value < 100)}f}" if value < 1e4 else f"{value:,.0f}".replace(",", " ")


def section(model: str, table: pl.DataFrame) -> list[str]:
    """A model's table and the commands behind it."""
    points = table.filter(
        pl.col("model") == model, pl.col("variant") != "tiny", pl.col("precision") == "fp16"
    )
    bars = BERT if model == "bert_large_qa" else published(model)
    lines, labels = [], list[str]()
    for bar in bars:
        at = points.filter(
            pl.col("scenario") == bar.scenario,
            pl.col("batch") == bar.batch,
            pl.col("concurrency") == bar.concurrency,
            pl.col("request_rate").is_null(),
        )
        for _, group in sorted(at.group_by(GROUP), key=lambda item: item[0]):
            best = group.sort("throughput", descending=True).row(0, named=True)
            if best["label"] not in labels:
                labels.append(best["label"])
            reached = group.filter(pl.col("throughput") >= bar.wanted).height
            least = f"; lowest {number(group['throughput'].min())}" if group.height > 1 else ""
            share = "" if best["share_of_limit"] is None else f"{best['share_of_limit']:.1%}"
            cells = (
                f"{bar.scenario}, batch {bar.batch}, {bar.concurrency} client{'s' * (bar.concurrency > 1)}",
                bar.text,
                f"{number(best['throughput'])} (p99 {best['p99_ms']:.3g})",
                f"{best['throughput'] / bar.wanted:.2f}",
                f"{reached} of {group.height}{least}",
                share,
                f"{best['gpu'].removeprefix('NVIDIA ').split()[0]}, `{best['format']}`, {best['setting']}",
                str(labels.index(best["label"]) + 1),
            )
            lines.append(f"| {' | '.join(cells)} |")
    head = "| point | bar | figure | figure / bar | campaigns | share | GPU, format, setting | no. |"
    commands = [""]
    for label in labels:
        row = points.filter(pl.col("label") == label).row(0, named=True)
        note = f" {row['note']}" if row["note"] else ""
        commands.append(
            f"{labels.index(label) + 1}. `{row['command']}` ({row['date']}, machine {row['machine']}, "
            f"commit {row['commit']}).{note}"
        )
    return [f"## {MODELS[model]}", "", head, "| --- " * 8 + "|", *lines, *commands, ""]


def tiny(table: pl.DataFrame) -> list[str]:
    """The trained tiny models: verdict and accuracy on the card."""
    lines = [
        "## Trained tiny models: correctness on the card",
        "",
        "These cells ran at the same time on one card, so their speed has no meaning. They are older than",
        "the layout channels last: since then `onnx` in fp16 on images was not checked on a card.",
        "",
        "| cell | verdict | metric | framework | served | largest difference |",
        "| --- " * 6 + "|",
    ]
    cells = table.filter(pl.col("variant") == "tiny").unique("cell", keep="first", maintain_order=True)
    for row in cells.sort("cell").iter_rows(named=True):
        values = (f"{row['framework_metric']:.4f}", f"{row['served_metric']:.4f}")
        lines.append(
            f"| {row['cell']} | {row['verdict']} | {row['metric']} | {' | '.join(values)} "
            f"| {row['largest_difference']:.1g} |"
        )
    return lines


def text(table: pl.DataFrame) -> str:
    """The page."""
    parts = [line for model in MODELS for line in section(model, table)]
    head = HEAD.replace("POINTS", str(table.height)).replace("CAMPAIGNS", str(table["campaign"].n_unique()))
    return head + "\n" + "\n".join([*parts, *tiny(table)]) + "\n"


if __name__ == "__main__":
    (ROOT / "docs" / "gpu-results.md").write_text(text(pl.read_parquet(TABLE)))
