"""Checkpoint and spoken lines of each variant."""

import shutil
from pathlib import Path
from typing import Any

from speech import read_shipped, write

FILES = {"checkpoint": "checkpoint.pt", "speech_file": "speech.npz"}
SOURCES = {
    "checkpoint": "nvidia_fastpitch_200518.pt",
    "list": "ljs_mel_dur_pitch_text_test_filelist.txt",
    "dataset": "LJSpeech-1.1",
}
SIZE = ("hidden", "layers", "head", "filter_width", "predictor")
DEFAULTS = {"steps": 350, "seed": 0}


def prepare(variant: str, output: Path, sources: Path, parameters: dict[str, Any]) -> dict[str, str]:
    """Fill the folder `output`; returns keyword arguments of the other functions as file names in it.

    Both read seq (tokens) from `parameters`. `full` takes the published files from `sources`. `tiny` trains a
    small network on the shipped speech; it reads the network's size, and steps (350) and seed (0). Raises
    ValueError on another variant.
    """
    output.mkdir(parents=True, exist_ok=True)
    if variant == "full":
        from ljspeech import read_lines

        shutil.copyfile(sources / SOURCES["checkpoint"], output / FILES["checkpoint"])
        places = sources / SOURCES["list"], sources / SOURCES["dataset"]
        write(read_lines(*places, int(parameters["seq"])), output / FILES["speech_file"])
    elif variant == "tiny":
        _make_tiny(output, parameters)
    else:
        raise ValueError(f"unknown variant {variant!r}: expected full or tiny")
    return dict(FILES)


def _make_tiny(output: Path, parameters: dict[str, Any]) -> None:
    from checkpoint import save
    from network import Size
    from tiny import train

    chosen = {key: int(parameters.get(key, default)) for key, default in DEFAULTS.items()}
    shipped, held_out = read_shipped(int(parameters["seq"]))
    write(held_out, output / FILES["speech_file"])
    size = Size(**{key: int(parameters[key]) for key in SIZE})
    save(train(shipped, size, **chosen), output / FILES["checkpoint"])
