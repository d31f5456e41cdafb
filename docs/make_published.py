"""Writes models/<model>/published.csv from the published documents:  python docs/make_published.py FOLDER

The documents are the Triton READMEs of five models of NVIDIA's DeepLearningExamples, as text files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

import polars as pl

from servegrid.reporting.published.document import Section, parse
from servegrid.reporting.published.table import COLUMN, EXAMPLE, PARAMETER

ROOT = Path(__file__).parents[1]
TITLES = {
    "the BERT model": "bert_large_qa",
    "the FastPitch model": "fastpitch",
    "the ResNet-50 v1.5 model": "resnet50",
    "the nnUNet model": "nnunet",
    "the Wide & Deep model": "wide_and_deep",
}
CARDS = {"A30": "A30", "A40": "A40", "A100": "A100-80GB", "V100": "V100-32GB", "T4": "T4"}
ACCELERATORS = {"-": "none", "CUDA": "none", "NVIDIA TensorRT": "trt", "Automatic FP16": "amp"}


def ours(section: Section) -> dict[str, str]:
    """Our names of a section's card, format, precision and accelerator."""
    stated = {name.lower(): value for name, value in section.parameters.items()}
    kind = " ".join(stated.get(name, "") for name in ("model format", "conversion variant", "model binding"))
    names = {"TF-TRT": "tf-trt", "SavedModel": "tf-savedmodel", "Trac": "ts-trace", "Script ": "ts-script"}
    names |= {"TorchScript": "ts-script", "ONNX": "onnx", "TensorRT": "trt"}
    return {
        "card": next(ours for name, ours in CARDS.items() if re.search(rf"\b{name}\b", stated["gpu"])),
        "format": next(ours for name, ours in names.items() if name in kind),
        "precision": stated["precision"].lower(),
        "accelerator": ACCELERATORS[stated.get("backend accelerator", "-")],
    }


def table(text: str) -> tuple[str, pl.DataFrame]:
    """The model that a document is about, and its figures."""
    title, model = next((title, model) for title, model in TITLES.items() if f"Deploying {title}" in text)
    head = {
        "source": f"NVIDIA DeepLearningExamples, Triton README of {title}",
        "triton_release": release(text),
    }
    stated = {EXAMPLE + name: value for name, value in examples(text).items()}
    found = [
        head | ours(s) | transport(text, s.scenario) | row | stated for s in parse(text) for row in rows(s)
    ]
    return model, pl.DataFrame(found, schema=dict.fromkeys(merged([list(row) for row in found]), pl.String))


def rows(section: Section) -> Iterator[dict[str, str]]:
    """The section's rows under the names of published.csv."""
    head = {"scenario": section.scenario.lower(), "title": section.title}
    parameters = {PARAMETER + name: value for name, value in section.parameters.items()}
    for row in section.rows:
        columns = {COLUMN + name: value for name, value in zip(section.columns, row, strict=True)}
        yield head | parameters | columns


def transport(text: str, scenario: str) -> dict[str, str | None]:
    """How the tensors of a scenario came to the server: protocol, shared memory and input data, as far as the
    scenario's introduction and the command that measured it say so."""
    # nnU-Net's toolkit takes CUDA's shared memory for its flag.
    introduction = re.search(rf"^[# ]*{scenario} scenario$(.*?)^[# ]*{scenario}:", text, re.M | re.S)
    command = re.search(rf"run_{scenario.lower()}_performance_test_on_triton.py(.*?)\n\n", text, re.S)
    said, flags = introduction[1] if introduction else "", command[1] if command else ""
    memory, http = re.search(r"shared-memory=(\w+)", said), "through HTTP" in said
    stated = memory[1] if memory else "none" if http else "cuda" if "--shared-memory" in flags else None
    return {
        "protocol": "http" if http else None,
        "shared_memory": stated,
        "input_data": "random" if "--input-data random" in text else "samples",
    }


def examples(text: str) -> dict[str, str]:
    """The settings of a document's scripts in its one example configuration."""
    found = dict(re.findall(r'^([A-Z_]+)="([^"$]+)"$', text, re.MULTILINE))
    if not found:
        for command in re.findall(
            r"^model-navigator (?:convert|triton-config-model) \\\n(.*?)\n\n", text, re.M | re.S
        ):
            for name, value in re.findall(
                r"^ +--([a-z0-9-]+)(?: ([^$\\\n]+?))?(?: \\)?$", command, re.MULTILINE
            ):
                found.setdefault(name, value or "yes")
    return found


def release(text: str) -> str | None:
    """The Triton release that a document names."""
    found = re.search(r"Triton Inference Server NGC container (\d\d\.\d\d)", text)
    return found[1] if found else None


def merged(orders: list[list[str]]) -> list[str]:
    """Every name once, in an order that each of the given ones keeps to."""
    before = TopologicalSorter[str]()
    for order in orders:
        for earlier, later in pairwise(order):
            before.add(later, earlier)
    return list(before.static_order())


def main(folder: Path) -> None:
    """Read every document of the folder."""
    for path in sorted(folder.glob("*.txt")):
        model, frame = table(path.read_text(encoding="utf-8"))
        frame.write_csv(ROOT / "models" / model / "published.csv")
        print(f"{model}: {frame.height} rows")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
