"""What a file is, by its first bytes or the names in its archive: nothing of it is loaded or run."""

from __future__ import annotations

import zipfile
from pathlib import Path

from servegrid.domain.values import ModelFile

WRITE_TORCH = (
    "load it where its Python code is, and write the network by torch.jit.trace(net.eval(), example)"
    ".save(FILE) or torch.export.save(torch.export.export(net.eval(), (example,)), FILE)"
)
WEIGHTS = f"weights without a network: {WRITE_TORCH}"
STARTS: dict[bytes, str] = {
    b"version https://git-lfs": "a pointer of Git LFS: run `git lfs pull` where it was cloned",
    b"<": "a web page or XML: download the file itself",
    b"\x89HDF": "an HDF5 file: load it with keras.models.load_model, and save it as a .keras file",
    b"\x80": f"a pickle, which is not loaded: {WRITE_TORCH}",
    b"\x1f\x8b": "a gzip archive: unpack it, and give the file in it",
    b"BZh": "a bzip2 archive: unpack it, and give the file in it",
    b"\xfd7zXZ": "an xz archive: unpack it, and give the file in it",
    b"7z\xbc\xaf": "a 7z archive: unpack it, and give the file in it",
    b"GGUF": "a GGUF file of llama.cpp: give the network that it was made of",
    b"\x93NUMPY": "an array of NumPy: samples go with --samples, as an .npz file",
}
"""First bytes of a file that no option takes -> what it is."""
TAKEN: dict[str, tuple[ModelFile, str]] = {
    "torchscript": ("torchscript", "a TorchScript file: give --torchscript"),
    "torch_export": ("torch_export", "a file of torch.export.save: give --torch-export"),
    "keras": ("keras", "a .keras file: give --keras"),
}
"""An archive that an option takes -> its option, and what to say with another one."""


def why_not(kind: ModelFile, path: Path) -> str | None:
    """What a file is and what to do, if it is surely none of this kind; None: it may be one.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        start = file.read(64)
    if not start:
        return "an empty file"
    if zipfile.is_zipfile(path):
        return _of_archive(kind, path)
    for bytes_, found in STARTS.items():
        if start.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(bytes_):
            return found
    if start[4:8] == b"TFL3":
        return "a TensorFlow Lite file: give the SavedModel or .keras file that it was made of"
    if start[8:9] == b"{":
        return f"a safetensors file, {WEIGHTS}"
    return None if kind == "onnx" else f"not a {_WANTED[kind]}"


def _of_archive(kind: ModelFile, path: Path) -> str | None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile:
        return "a damaged archive: copy or download it again"
    found = _archive_kind(names)
    if found in TAKEN:
        own, advice = TAKEN[found]
        return None if own == kind else advice
    return found


def _archive_kind(names: list[str]) -> str:
    """The key of `TAKEN`, or what else an archive with files of these names is."""
    parts = [name.split("/") for name in names]
    if any("aotinductor" in part for part in parts):
        return "a package of AOTInductor, compiled for one machine: give the file of torch.export.save"
    if any(part[-1] == "constants.pkl" or "code" in part[1:-1] for part in parts):
        return "torchscript"
    if any(part[-1] in ("serialized_exported_program.json", "archive_format") for part in parts):
        return "torch_export"
    if {"config.json", "metadata.json"} <= {*names}:
        return "keras"
    if any(part[-1] == "data.pkl" for part in parts):
        return f"a file of torch.save, {WEIGHTS}"
    if any(name.endswith(".npy") for name in names):
        return "arrays of NumPy: samples go with --samples, and a model with its own option"
    if any(part[-1] == "saved_model.pb" for part in parts):
        return "an archive of a SavedModel: unpack it, and give --savedmodel FOLDER"
    return "a zip archive: unpack it, and give the model's file"


_WANTED: dict[ModelFile, str] = {
    "onnx": "ONNX model",
    "torchscript": "file of torch.jit.save",
    "torch_export": "file of torch.export.save",
    "savedmodel": "SavedModel",
    "keras": ".keras file",
}
