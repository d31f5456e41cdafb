"""Hugging Face folders as their own files describe them; no framework is imported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from servegrid.domain.errors import UserError
from servegrid.sources.hugging_face import read_fields


def write(folder: Path, config: dict[str, Any], weights: str = "model.safetensors", **files: Any) -> Path:
    """A folder with these files; the weights are empty."""
    folder.mkdir()
    for name, content in {"config": config, **files}.items():
        path = folder / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))
    (folder / weights).touch()
    return folder


def of(architecture: str) -> dict[str, Any]:
    return {"model_type": "any", "architectures": [architecture]}


@pytest.mark.parametrize(
    ("architecture", "task", "loads"),
    [
        ("BertForSequenceClassification", "text-classification", "AutoModelForSequenceClassification"),
        ("Wav2Vec2ForSequenceClassification", "audio-classification", "AutoModelForAudioClassification"),
        ("DistilBertForTokenClassification", "token-classification", "AutoModelForTokenClassification"),
        ("RobertaForQuestionAnswering", "question-answering", "AutoModelForQuestionAnswering"),
        ("ViTForImageClassification", "image-classification", "AutoModelForImageClassification"),
        ("Wav2Vec2ForCTC", "automatic-speech-recognition", "AutoModelForCTC"),
        ("WhisperForConditionalGeneration", "feature-extraction", "AutoModel"),
        ("CLIPModel", "feature-extraction", "AutoModel"),
    ],
)
def test_task_follows_from_the_architecture(architecture: str, task: str, loads: str, tmp_path: Path) -> None:
    fields = read_fields(write(tmp_path / "my-net", of(architecture)), None)
    assert (fields.name, fields.task, fields.auto_class, fields.pooling) == ("my_net", task, loads, "none")


def sentence_folder(folder: Path, *kinds: str, **modes: bool) -> Path:
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    pooling = {"word_embedding_dimension": 8} | {f"pooling_mode_{mode}": on for mode, on in modes.items()}
    return write(folder, of("BertModel"), modules=modules, **{"1_Pooling/config": pooling})


def test_sentence_embedding_is_pooled_as_its_folder_says(tmp_path: Path) -> None:
    mean = sentence_folder(tmp_path / "a", "Transformer", "Pooling", mean_tokens=True, cls_token=False)
    fields = read_fields(mean, None)
    assert (fields.task, fields.pooling, fields.normalize) == ("sentence-similarity", "mean", False)
    first = sentence_folder(tmp_path / "b", "Transformer", "Pooling", "Normalize", cls_token=True)
    fields = read_fields(first, None)
    assert (fields.pooling, fields.normalize) == ("cls", True)


def test_pooling_or_a_module_that_cannot_be_served_is_refused(tmp_path: Path) -> None:
    most = sentence_folder(tmp_path / "a", "Transformer", "Pooling", max_tokens=True)
    with pytest.raises(UserError, match=r"1_Pooling/config.json.*pooling_mode_max_tokens"):
        read_fields(most, None)
    dense = sentence_folder(tmp_path / "b", "Transformer", "Pooling", "Dense", mean_tokens=True)
    with pytest.raises(UserError, match=r"modules.json.*Dense"):
        read_fields(dense, None)


@pytest.mark.parametrize("architectures", [[], ["BertForPreTraining"], ["BertModel", "BertForMaskedLM"]])
def test_ambiguous_architecture_needs_a_task(architectures: list[str], tmp_path: Path) -> None:
    folder = write(tmp_path / "net", {"model_type": "bert", "architectures": architectures})
    with pytest.raises(UserError, match=r"--task.*fill-mask"):
        read_fields(folder, None)
    assert read_fields(folder, "fill-mask").auto_class == "AutoModelForMaskedLM"
    with pytest.raises(UserError, match=r"--task.*fil-mask.*fill-mask"):
        read_fields(folder, "fil-mask")


def test_folder_that_would_run_code_is_refused(tmp_path: Path) -> None:
    remote = of("MyModel") | {"auto_map": {"AutoModel": "modeling.MyModel"}}
    with pytest.raises(UserError, match=r"config.json.*auto_map"):
        read_fields(write(tmp_path / "remote", remote), None)
    pickled = write(tmp_path / "pickled", of("BertModel"), weights="pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model.bin.*safetensors"):
        read_fields(pickled, None)


def test_what_is_no_such_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder, named in (
        (tmp_path / "absent", "no such folder"),
        (tmp_path / "empty", "config.json"),
        (write(tmp_path / "typeless", {"architectures": ["BertModel"]}), "config.json.*model_type"),
        (write(tmp_path / "weightless", of("BertModel"), weights="weights.h5"), "safetensors"),
    ):
        with pytest.raises(UserError, match=named):
            read_fields(folder, None)


def test_only_the_files_that_are_read_are_named(tmp_path: Path) -> None:
    index = {"model.safetensors.index": {}, "tokenizer": {}}
    folder = write(tmp_path / "net", of("BertModel"), weights="model-00001-of-00001.safetensors", **index)
    for name in ("pytorch_model.bin", "modeling.py", "README.md"):
        (folder / name).touch()
    fields = read_fields(folder, None)
    assert fields.checkpoint == (
        "config.json", "model-00001-of-00001.safetensors", "model.safetensors.index.json",
    )  # fmt: skip
    assert fields.processor == ("config.json", "tokenizer.json")
