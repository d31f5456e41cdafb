"""What people give by mistake in place of a model file: one line that says what it is and what to do, no
process is started, and nothing is left in the store."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., tuple[int, str]]


def archive(*names: str) -> bytes:
    """A zip with empty files of these names."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name in names:
            made.writestr(name, b"")
    return file.getvalue()


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, x=np.ones(2))
    return file.getvalue()


CHECKPOINT = archive("net/data.pkl", "net/data/0", "net/version", "net/byteorder")
TORCHSCRIPT = archive("net/data.pkl", "net/code/__torch__.py", "net/constants.pkl", "net/version")
EXPORTED = archive("net/models/model.json", "net/archive_format", "net/data/weights/weight_0")
PACKAGE = archive("net/data/aotinductor/model/c.so", "net/archive_format")
KERAS = archive("metadata.json", "config.json", "model.weights.h5")
SAFETENSORS = (2).to_bytes(8, "little") + b"{}"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
HTML = b"\n<!doctype html><html><body>404</body></html>"
FILES: dict[str, tuple[str, bytes, str]] = {
    "a checkpoint for TorchScript": ("--torchscript", CHECKPOINT, "torch.save.*torch.jit.trace"),
    "a checkpoint for a program": ("--torch-export", CHECKPOINT, "torch.save.*torch.export.save"),
    "a checkpoint for ONNX": ("--onnx", CHECKPOINT, "torch.save"),
    "a checkpoint for Keras": ("--keras", CHECKPOINT, "torch.save"),
    "an old checkpoint": ("--torchscript", b"\x80\x02\x8a\nl\xfc", "pickle.*torch.jit.trace"),
    "a pickle for ONNX": ("--onnx", b"\x80\x04\x95", "pickle"),
    "a program for TorchScript": ("--torchscript", EXPORTED, "--torch-export"),
    "a program for ONNX": ("--onnx", EXPORTED, "--torch-export"),
    "TorchScript for a program": ("--torch-export", TORCHSCRIPT, "--torchscript"),
    "TorchScript for ONNX": ("--onnx", TORCHSCRIPT, "--torchscript"),
    "TorchScript for Keras": ("--keras", TORCHSCRIPT, "--torchscript"),
    "a compiled package": ("--torch-export", PACKAGE, "AOTInductor.*torch.export.save"),
    "a compiled package for TorchScript": ("--torchscript", PACKAGE, "AOTInductor"),
    "Keras for TorchScript": ("--torchscript", KERAS, "--keras"),
    "Keras for ONNX": ("--onnx", KERAS, "--keras"),
    "HDF5 for Keras": ("--keras", b"\x89HDF\r\n\x1a\n" + bytes(50), "HDF5.*\\.keras"),
    "HDF5 for ONNX": ("--onnx", b"\x89HDF\r\n\x1a\n" + bytes(50), "HDF5"),
    "safetensors for TorchScript": ("--torchscript", SAFETENSORS, "safetensors.*without a network"),
    "safetensors for ONNX": ("--onnx", SAFETENSORS, "safetensors"),
    "TensorFlow Lite for Keras": ("--keras", b"\x1c\0\0\0TFL3" + bytes(60), "TensorFlow Lite"),
    "TensorFlow Lite for ONNX": ("--onnx", b"\x1c\0\0\0TFL3" + bytes(60), "TensorFlow Lite"),
    "GGUF": ("--onnx", b"GGUF\x03\0\0\0", "GGUF"),
    "a pointer of Git LFS": ("--onnx", LFS, "git lfs pull"),
    "a pointer of Git LFS for TorchScript": ("--torchscript", LFS, "git lfs pull"),
    "a web page": ("--onnx", HTML, "web page"),
    "a web page for a program": ("--torch-export", HTML, "web page"),
    "a gzip archive": ("--onnx", b"\x1f\x8b\x08", "gzip.*unpack"),
    "a zip of an ONNX file": ("--onnx", archive("net/model.onnx"), "zip archive: unpack"),
    "a zip of a SavedModel": ("--keras", archive("net/saved_model.pb"), "--savedmodel FOLDER"),
    "a zip that is damaged": ("--torchscript", KERAS[:20] + b"\xff" * 40 + KERAS[60:], "archive|--keras"),
    "an empty file for ONNX": ("--onnx", b"", "empty file"),
    "an empty file for TorchScript": ("--torchscript", b"", "empty file"),
    "an empty file for Keras": ("--keras", b"", "empty file"),
    "an array": ("--onnx", b"\x93NUMPY\x01\0", "--samples"),
    "samples for a model": ("--torchscript", npz(), "--samples"),
    "text for TorchScript": ("--torchscript", b"import torch", "not a file of torch.jit.save"),
    "text for a program": ("--torch-export", b"import torch", "not a file of torch.export.save"),
    "text for Keras": ("--keras", b"import keras", "not a .keras file"),
    "an ONNX file for Keras": ("--keras", b"\x08\x09:\x10", "not a .keras file"),
}


def refusal(servegrid: Run, home: Path, *words: str) -> str:
    """The one line by which `plan` refuses these words, with nothing written."""
    code, output = servegrid("plan", *words)
    assert (code, len(output.splitlines())) == (2, 1), output[:2000]
    assert not home.exists()
    return output


@pytest.mark.parametrize("name", FILES)
@pytest.mark.fault(
    "Inputs: other files than a model", "one line that says what it is and what to do", what="there is"
)
def test_wrong_file(name: str, servegrid: Run, home: Path, tmp_path: Path, happened: Any) -> None:
    option, content, named = FILES[name]
    (tmp_path / "net.bin").write_bytes(content)
    message = refusal(servegrid, home, option, "net.bin")
    assert f"{option} {tmp_path / 'net.bin'}: " in message
    assert re.search(named, message), message
    happened(message)


FOLDERS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "a folder for an ONNX file": ("--onnx", (), "a folder; give the model's file"),
    "a folder for a program": ("--torch-export", (), "a folder; give the model's file"),
    "a folder for Keras": ("--keras", ("config.json",), "a folder; give the model's file"),
    "a folder without a SavedModel": ("--savedmodel", ("weights.bin",), "saved_model.pb"),
    "the folder of an Estimator": (
        *("--savedmodel", ("checkpoint", "graph.pbtxt", "model.ckpt-9.index")),
        "estimator.export_saved_model",
    ),
    "the folder above a SavedModel": ("--savedmodel", ("1/saved_model.pb",), "net/1 is one"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_wrong_folder(name: str, servegrid: Run, home: Path, tmp_path: Path) -> None:
    option, files, named = FOLDERS[name]
    for file in ("net/.keep", *(f"net/{file}" for file in files)):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    assert named in refusal(servegrid, home, option, "net")


OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "two files": (("--onnx", "x", "--keras", "y"), ("--onnx and --keras", "give one")),
    "a program and a folder": (
        ("--torch-export", "x", "--model-dir", "y"),
        ("--torch-export", "--model-dir"),
    ),
    "a signature of an ONNX file": (("--onnx", "x", "--signature", "s"), ("--signature", "--savedmodel")),
    "a name of a folder": (("--model-dir", "x", "--name", "n"), ("--name", "model.yaml")),
    "a name that is a path": (("--onnx", "x", "--name", "a/b"), ("name", "64 letters")),
    "a shape of no file": (("--shape", "x=1,2"), ("--shape", "--torch-export", "--keras")),
    "a setting without value": (("--set", "max_batch_size"), ("--set max_batch_size", "KEY=VALUE")),
    "a setting of no field": (("--set", "max_bach_size=3"), ("'serving.max_batch_size'",)),
    "a setting out of range": (("--set", "max_batch_size=-1"), ("serving.max_batch_size", "-1")),
    "instances of none": (("--instances", "0,1"), ("instances",)),
    "instances in words": (("--instances", "two"), ("instances", "'two'")),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_wrong_options(name: str, servegrid: Run, home: Path) -> None:
    words, named = OPTIONS[name]
    message = refusal(servegrid, home, *words)
    assert all(part in message for part in named), message
    assert len(message) < 1500
