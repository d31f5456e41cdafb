"""Writes docs/published-features.md:  python docs/make_published_features.py [FOLDER]

docs/published_features.csv says where each script, flag, setting and column of NVIDIA's five published
deployments is in servegrid. With the FOLDER of their documents (see make_published.py) the features are read
from there first: new ones get an empty `here`, which a person fills in. The tables come from published.csv.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import polars as pl

from servegrid.reporting.published.document import parse

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "published_features.csv"
MODELS = {
    "the BERT model": "bert_large_qa",
    "the FastPitch model": "fastpitch",
    "the nnUNet model": "nnunet",
    "the ResNet-50 v1.5 model": "resnet50",
    "the Wide & Deep model": "wide_and_deep",
}
KINDS = {
    "stage": "Stages and scripts",
    "flag": "Flags",
    "setting": "Settings",
    "column": "Parameters and columns of the tables",
}
HEAD = """# Where the published deployments' features are

This page lists every stage, script, flag, setting and table of NVIDIA's five published Triton deployments
and where it is in servegrid. `docs/make_published_features.py` makes it from `docs/published_features.csv`
and `models/*/published.csv`.
"""


def features(document: str) -> set[tuple[str, str]]:
    """Kind and name of every feature of a document."""
    found = {("stage", Path(name).name) for name in re.findall(r"triton/[\w/]+\.(?:py|sh)", document)}
    found |= {("stage", name) for name in re.findall(r"model-navigator [a-z-]+", document)}
    found |= {("flag", name) for name in re.findall(r"(?<=\s)--[a-z][a-z0-9-]+", document)}
    found |= {("setting", name) for name in re.findall(r'^([A-Z_]+)="', document, re.MULTILINE)}
    for section in parse(document):
        found |= {("column", plain(name)) for name in (*section.parameters, *section.columns)}
    return found


def plain(name: str) -> str:
    """A table's parameter or column without its unit; the documents differ in their capitals."""
    return name.removesuffix(" (ms)").lower()


def gathered(folder: Path, known: pl.DataFrame) -> pl.DataFrame:
    """The features of all documents with their models; `here` is kept of `known`."""
    models: dict[tuple[str, str], list[str]] = {}
    for path in sorted(folder.glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        model = next(name for title, name in MODELS.items() if f"Deploying {title}" in text)
        for feature in features(text):
            models.setdefault(feature, []).append(model)
    here = {(row["kind"], row["name"]): row["here"] for row in known.iter_rows(named=True)}
    order = sorted(models, key=lambda feature: ([*KINDS].index(feature[0]), feature[1]))
    rows = [(*key, " ".join(sorted(models[key])), here.get(key) or "") for key in order]
    return pl.DataFrame(rows, schema=["kind", "name", "models", "here"], orient="row")


def tables(published: pl.DataFrame, model: str) -> list[str]:
    """One line for each published table of a model: its cell, and the command that measures it."""
    keys = ["scenario", "card", "format", "precision", "accelerator"]
    lines = []
    for scenario, card, format_, precision, accelerator in published.select(keys).unique().sort(keys).rows():
        options = f"--profile {card.lower()} --format {format_} --precision {precision}"
        # On tf-trt the accelerator is a label, which some of the published tables leave out.
        chosen = "" if format_ == "tf-trt" else f" --accelerator {accelerator}"
        command = f"servegrid sweep --model {model} --variant full --fixed-points {options}{chosen}"
        name = f"{scenario}, {card}, {format_} {precision}, accelerator {accelerator}"
        lines.append(f"| {model} | {name} | `{command}` |")
    return lines


def text(known: pl.DataFrame, published: dict[str, pl.DataFrame]) -> str:
    """The page."""
    parts = [HEAD]
    for kind, title in KINDS.items():
        parts.append(f"## {title}\n\n| published | of | here |\n| --- | --- | --- |")
        for row in known.filter(pl.col("kind") == kind).iter_rows(named=True):
            of = "all" if len(row["models"].split()) == len(MODELS) else row["models"].replace(" ", ", ")
            parts[-1] += f"\n| `{row['name']}` | {of} | {row['here']} |"
        parts[-1] += "\n"
    parts.append("## Tables\n\n| model | published table | command |\n| --- | --- | --- |")
    for model, frame in published.items():
        parts[-1] += "".join(f"\n{line}" for line in tables(frame, model))
    return "\n".join(parts) + "\n"


def read() -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
    """The committed features, and the published rows of each model, as text."""
    published = {
        m: pl.read_csv(ROOT / "models" / m / "published.csv", infer_schema=False) for m in MODELS.values()
    }
    return pl.read_csv(FILE, infer_schema=False).fill_null(""), published


if __name__ == "__main__":
    if len(sys.argv) > 1:
        old = read()[0] if FILE.exists() else pl.DataFrame(schema=["kind", "name", "here"])
        gathered(Path(sys.argv[1]), old).write_csv(FILE)
    (ROOT / "docs" / "published-features.md").write_text(text(*read()), encoding="utf-8")
