"""Model folders that are made of Hugging Face folders with untrained networks: tensors and samples."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servegrid.domain.root import ROOT
from servegrid.domain.spec import ModelSpec
from servegrid.plan.spec_rules import load_spec

MAKE = ROOT / "tests" / "hugging_face" / "make_folder.py"
KINDS = (
    *("sequence_classification", "token_classification", "question_answering", "sentence_embedding"),
    *("image_classification", "clip", "audio_classification", "whisper"),
)
READ = """
import sys
from pathlib import Path
from servegrid.domain.errors import UnsupportedError
from servegrid.frameworks.hugging_face_folder.read import read_hugging_face
from servegrid.sources.hugging_face import read_fields
from servegrid.store.job import Job
folder, *kinds = sys.argv[1:]
for kind in kinds:
    kind, _, task = kind.partition("=")
    at = Path(folder) / kind
    output = at / ("made" + task)
    output.mkdir()
    samples = next(path for path in (at / "samples", at / "samples.jsonl") if path.exists())
    inputs = {"file": at / "model", **({} if task else {"samples": samples})}
    fields = read_fields(at / "model", task or None)
    try:
        read_hugging_face(Job(step="", fields=fields, inputs=inputs, plugin=output, output=output))
    except UnsupportedError as error:
        (output / "refused").write_text(str(error))
"""


class Runs:
    """A hostile pickle: unpickled, it would write the file `ran` into the working folder."""

    def __reduce__(self) -> Any:
        return (os.system, ("touch ran",))


@pytest.fixture(scope="module")
def made(run_python: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `KIND/model/` and the model folder `KIND/made/` for each kind."""
    folder = tmp_path_factory.mktemp("hugging_face")
    subprocess.run([sys.executable, "-W", "ignore", MAKE, folder, "0", *KINDS], check=True, timeout=300)
    (folder / "clip" / "model" / "pytorch_model.bin").write_bytes(pickle.dumps(Runs()))
    run_python(READ, folder, *KINDS, "sentence_embedding=text-classification", "clip=feature-extraction")
    return folder


def spec(made: Path, kind: str, folder: str = "made") -> ModelSpec:
    refused = made / kind / folder / "refused"
    assert not refused.exists(), refused.read_text()
    return load_spec(made / kind / folder / "model.yaml")


def tensors(found: ModelSpec) -> dict[str, tuple[str, tuple[Any, ...]]]:
    return {t.name: (t.dtype, t.shape) for t in (*found.inputs, *found.outputs)}


IDS = ("int64", (-1, -1))


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("sequence_classification", {"logits": ("float32", (-1, 2))}),
        ("token_classification", {"logits": ("float32", (-1, -1, 8))}),
        ("question_answering", dict.fromkeys(("start_logits", "end_logits"), ("float32", (-1, -1)))),
        ("sentence_embedding", {"sentence_embedding": ("float32", (-1, 32))}),
    ],
)
def test_text_is_int64_of_free_length(made: Path, kind: str, wanted: dict[str, Any]) -> None:
    found = tensors(spec(made, kind))
    inputs = {name for name, tensor in found.items() if tensor == IDS}
    assert {"input_ids", "attention_mask"} <= inputs <= {"input_ids", "attention_mask", "token_type_ids"}
    assert {name: tensor for name, tensor in found.items() if name not in inputs} == wanted


def test_images_and_audio_are_floats_as_their_processor_makes_them(made: Path) -> None:
    assert tensors(spec(made, "image_classification")) == {
        "pixel_values": ("float32", (-1, 3, 32, 32)), "logits": ("float32", (-1, 4)),
    }  # fmt: skip
    assert tensors(spec(made, "whisper")) == {
        "input_features": ("float32", (-1, 16, 100)), "last_hidden_state": ("float32", (-1, 50, 32)),
    }  # fmt: skip
    assert tensors(spec(made, "audio_classification")) == {
        "input_values": ("float32", (-1, -1)), "attention_mask": IDS, "logits": ("float32", (-1, 2)),
    }  # fmt: skip


def test_clip_takes_both_inputs_and_gives_what_is_a_row_a_sample(made: Path) -> None:
    found = spec(made, "clip")
    names = tensors(found)
    assert {"input_ids", "attention_mask", "pixel_values", "text_embeds", "image_embeds"} <= set(names)
    assert names["vision_model_output_last_hidden_state"] == ("float32", (-1, 17, 32))
    assert "logits_per_image" not in names
    assert "logits_per_image" in found.description


def test_samples_are_padded_and_the_mask_says_their_lengths(made: Path) -> None:
    lines = (made / "sequence_classification" / "samples.jsonl").read_text().splitlines()
    words = [len(json.loads(line)["text"].split()) for line in lines]
    with np.load(made / "sequence_classification" / "made" / "data" / "samples.npz") as x:
        lengths = x["attention_mask"].sum(1)
        assert lengths.tolist() == [count + 2 for count in words]  # with [CLS] and [SEP]
        assert x["input_ids"].shape[1] == lengths.max() > lengths.min()
    assert spec(made, "sequence_classification").variants["hf"].samples == len(lines)


def test_samples_are_made_up_where_none_are_given(made: Path) -> None:
    folder = made / "clip" / "madefeature-extraction"
    with np.load(folder / "data" / "samples.npz") as x:
        assert (
            len(x["input_ids"])
            == len(x["pixel_values"])
            == spec(made, "clip", folder.name).variants["hf"].samples
        )
        assert len(set(x["attention_mask"].sum(1))) > 1


def test_head_without_weights_is_refused(made: Path) -> None:
    refused = made / "sentence_embedding" / "madetext-classification" / "refused"
    assert "classifier.weight" in refused.read_text()


def test_no_pickle_is_read_or_kept(made: Path) -> None:
    assert not Path("ran").exists()
    kept = {path.name for path in (made / "clip" / "made" / "data" / "checkpoint").iterdir()}
    assert kept == {"config.json", "model.safetensors"}
