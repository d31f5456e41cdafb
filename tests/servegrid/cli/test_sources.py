"""`servegrid sources`: its commands turn the published downloads into the files that a variant reads."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from servegrid.cli.main import app
from servegrid.domain.errors import UserError
from servegrid.domain.root import ROOT
from servegrid.plan.models import load_model

PUBLISHED = {
    "bert_large_qa": ("bert_large_qa", "bert_config.json", "vocab.txt", "dev-v1.1.json"),
    "fastpitch": (
        "nvidia_fastpitch_200518.pt",
        "LJSpeech-1.1/metadata.csv",
        "LJSpeech-1.1/wavs/LJ001-0001.wav",
    ),
    "nnunet": ("nvidia_nnunet_pyt_ckpt_amp_3d_fold2.ckpt", "Task01_BrainTumour/imagesTr/BRATS_001.nii.gz"),
    "resnet50": (
        *("rn50_tf_amp_ckpt_v20.06.0/nn.index", "imagenet/LOC_val_solution.csv"),
        "imagenet/ILSVRC2012_val_00000001.JPEG",
    ),
    "wide_and_deep": ("checkpoint/checkpoint", "valid/part_0.parquet"),
}
"""Model -> files that its prepare reads (of a folder: one in it)."""
BERT = "uncased_L-24_H-1024_A-16"
ZIPPED = ("bert_large_qa.pt", "nvidia_fastpitch_200518.pt", "nvidia_nnunet_pyt_ckpt_amp_3d_fold2.ckpt")
DEEP = Path("DeepLearningExamples")
LIST = "PyTorch/SpeechSynthesis/FastPitch/filelists/ljs_mel_dur_pitch_text_test_filelist.txt"


def downloads(folder: Path) -> None:
    """What the publishers give, with other content: the archives' layouts are the published ones."""
    parts = folder / "parts"
    for name in ("wavs/LJ001-0001.wav", "metadata.csv", "imagesTr/BRATS_001.nii.gz", "val_1.JPEG"):
        (parts / name).parent.mkdir(parents=True, exist_ok=True)
        (parts / name).write_text(name)
    with tarfile.open(folder / "LJSpeech-1.1.tar.bz2", "w:bz2") as tar:
        for name in ("wavs/LJ001-0001.wav", "metadata.csv"):
            tar.add(parts / name, f"LJSpeech-1.1/{name}")
    with tarfile.open(folder / "Task01_BrainTumour.tar", "w") as tar:
        tar.add(parts / "imagesTr", "Task01_BrainTumour/imagesTr")
    with tarfile.open(folder / "ILSVRC2012_img_val.tar", "w") as tar:
        tar.add(parts / "val_1.JPEG", "ILSVRC2012_val_00000001.JPEG")
    with zipfile.ZipFile(folder / f"{BERT}.zip", "w") as archive:
        for name in ("bert_config.json", "vocab.txt"):
            archive.writestr(f"{BERT}/{name}", name)
    with zipfile.ZipFile(folder / "DOWNLOAD", "w") as archive:
        for name in (*ZIPPED, "nn.index", "checkpoint/checkpoint"):
            archive.writestr(name, name)
    for name in ("dev-v1.1.json", "LOC_val_solution.csv", "outbrain/data/valid/part_0.parquet", DEEP / LIST):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("text")
    preprocess = folder / DEEP / "TensorFlow2/Recommendation/WideAndDeep/scripts/preproc.sh"
    preprocess.parent.mkdir(parents=True)
    preprocess.write_text("true\n")


@pytest.mark.skipif(not shutil.which("unzip"), reason="no unzip on this host")
@pytest.mark.parametrize("model", PUBLISHED)
def test_the_commands_put_every_file_where_prepare_reads_it(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads(tmp_path)
    monkeypatch.setenv("SERVEGRID_SOURCES", str(tmp_path / "sources"))
    shown = CliRunner().invoke(app, ["sources", model]).output
    spec = load_model(ROOT / "models", model).spec
    for source in spec.variants["full"].sources:
        assert f"{tmp_path / 'sources' / model / source.file}: missing" in shown
        assert source.content in shown and source.published in shown
        assert source.commands and source.content
    lines = [line.strip() for line in shown.splitlines()]
    commands = [line.removeprefix("command: ") for line in lines if line.startswith(("command: ", "mkdir"))]
    environment = os.environ | {"HOST_OUTBRAIN_PATH": str(tmp_path / "outbrain")}
    for command in commands:
        subprocess.run(["bash", "-ec", command], cwd=tmp_path, env=environment, check=True)
    again = CliRunner().invoke(app, ["sources", model, "--variant", "full"]).output
    assert again.count(": present") == len(spec.variants["full"].sources)
    for name in PUBLISHED[model]:
        assert list((tmp_path / "sources" / model).glob(f"{name}*")), name


def test_size_and_digest_of_a_known_download_are_shown() -> None:
    shown = CliRunner().invoke(app, ["sources", "nnunet"]).output
    assert "Task01_BrainTumour.tar, 7608266240 bytes, md5:240a19d752f0d9e9101544901065d872" in shown


def test_a_variant_without_files_and_unknown_names() -> None:
    assert "tiny" in CliRunner().invoke(app, ["sources", "nnunet", "--variant", "tiny"]).output
    for words, named in ((["nnnet"], "nnunet"), (["nnunet", "--variant", "ful"], "full")):
        caught = CliRunner().invoke(app, ["sources", *words]).exception
        assert isinstance(caught, UserError) and named in str(caught)
