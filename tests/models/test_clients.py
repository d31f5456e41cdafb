"""The client of each model asks a real server, and prints the answer that a human wants. (nnU-Net's is tested
with the network of its plug-in.)"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servegrid.domain.root import ROOT
from servegrid.domain.values import Interface

pytestmark = pytest.mark.check

Served = Callable[[str], tuple[Any, Callable[..., list[str]]]]


@pytest.fixture
def served(tiny_cell: Any, server: Any, child_in: Any) -> Served:
    """`served(model)`: its tiny ONNX cell, on the shared server, and what its client prints for arguments."""

    def serve(model: str) -> tuple[Any, Callable[..., list[str]]]:
        tiny = tiny_cell(model)
        artifact = tiny.folder(tiny.converted)
        interface = Interface.model_validate_json((artifact / "interface.json").read_text())
        url, name = server.running.grpc_url, server.load(f"{model}_client", artifact, interface)
        child, client = child_in(ROOT / "models" / model), ROOT / "models" / model / "client.py"

        def ask(*words: object) -> list[str]:
            shown: str = child.output(child.start(client, "--url", url, "--model", name, *words))
            return shown.splitlines()

        return tiny, ask

    return serve


def test_bert_prints_the_span_that_answers(served: Served) -> None:
    tiny, ask = served("bert_large_qa")
    prepared = tiny.folder(tiny.prepared)
    (paragraph,) = json.loads((prepared / "dev.json").read_text())["data"][0]["paragraphs"][:1]
    (question,) = paragraph["qas"]
    shown = ask(
        *("--vocab-file", prepared / "vocab.txt", "--max-seq-length", 64),
        *("--question", question["question"], "--context", paragraph["context"]),
    )
    assert shown == [answer["text"] for answer in question["answers"]]


def test_fastpitch_draws_a_mel_as_long_as_the_framework_speaks(served: Served, tmp_path: Path) -> None:
    tiny, ask = served("fastpitch")
    symbols = re.search(r'^SYMBOLS = "(.+)"$', (ROOT / "models/fastpitch/text.py").read_text(), re.M)
    assert symbols
    with np.load(tiny.folder(tiny.exported) / "example.npz") as example:
        tokens, frames = example["x/INPUT__0"][0], int(example["y/OUTPUT__1"][0, 0])
    text = "".join(symbols[1][token] for token in tokens if token)
    (shown,) = ask("--text", text, "--output", tmp_path / "mel.pgm")
    assert shown.startswith(f"{frames} frames, ")
    head, pixels = (tmp_path / "mel.pgm").read_bytes().split(b"\n", 1)
    assert (head, len(pixels)) == (f"P5 {frames} 80 255".encode(), frames * 80)
    assert np.ptp(np.frombuffer(pixels, np.uint8)) > 100  # it is a picture of something


def test_resnet_names_the_digit(served: Served) -> None:
    tiny, ask = served("resnet50")
    labels = np.load(tiny.folder(tiny.prepared) / "labels.npy")
    sample = 1400 - (1797 - len(labels))  # of all digits, of which the last are held out
    likeliest, *others = ask()
    assert likeliest.endswith(f"class {labels[sample]}")
    assert float(likeliest.split("%")[0]) > 90
    assert len(others) == 4


def test_wide_and_deep_ranks_the_ads_as_the_framework_does(served: Served) -> None:
    tiny, ask = served("wide_and_deep")
    shown = [re.fullmatch(r"(\d)\. ad (\d+): ([\d.]+)% likely to be clicked", line) for line in ask()]
    found = [(int(line[2]), float(line[3])) for line in shown if line]
    with np.load(tiny.folder(tiny.samples) / "samples.npz") as samples:
        ads = samples["x/ad_id"][:6, 0].tolist()  # the sample request is the first held-out display
    with np.load(tiny.folder(tiny.reference) / "outputs.npz") as outputs:
        likely = outputs["wide_deep_model"][:6, 0].tolist()
    expected = sorted(zip(ads, likely, strict=True), key=lambda pair: -pair[1])
    assert [ad for ad, _ in found] == [ad for ad, _ in expected]
    assert [p for _, p in found] == pytest.approx([100 * p for _, p in expected], abs=0.1)
