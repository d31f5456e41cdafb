"""LJSpeech as the published FastPitch prepares it: a file list, and one mel a line."""

import pickle
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from speech import MEL_BINS, Speech
from text import encode, pad

COLUMNS = "mel|durations|pitch|text"


def read_list(file: Path, seq: int) -> Speech:
    """Read the lines of a published file list that the network can take.

    Each line names a mel, durations and pitches, relative to the list, then the text; only mel and text are
    read. Texts of more than seq symbols or with digits are left out. Raises ValueError naming file and line
    where something is not as published.
    """
    rows, mels = [], []
    lines = file.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        columns = line.split("|")
        if len(columns) != len(COLUMNS.split("|")):
            raise ValueError(f"{file}:{number}: expected {COLUMNS}, found {len(columns)} columns: {line!r}")
        mel, text = columns[0], columns[-1]
        if any(character.isdigit() for character in text) or len(encode(text)) > seq:
            continue
        rows.append(encode(text))
        mels.append(_read_mel(file.parent / mel, f"{file}:{number}"))
    if not rows:
        raise ValueError(f"{file}: no line without digits and of at most {seq} symbols")
    print(f"{len(rows)} of {len(lines)} lines are free of digits and fit into {seq} symbols")
    return Speech(tokens=pad(rows, seq), mels=mels)


def _read_mel(path: Path, where: str) -> NDArray[np.float32]:
    """float32 [frames, 80] of a .pt or .npy file that holds [80, frames], as extract_mels.py writes it."""
    try:
        if path.suffix == ".npy":
            mel = np.load(path)
        else:
            mel = torch.load(path, map_location="cpu", weights_only=True).numpy()
    except OSError as error:
        raise ValueError(f"{where}: its mel cannot be read: {error}") from error
    except (pickle.UnpicklingError, EOFError, AttributeError, RuntimeError, ValueError) as error:
        raise ValueError(f"{path}: not one tensor or array ({error})") from error
    if mel.ndim != 2 or mel.shape[0] != MEL_BINS or not mel.shape[1] or mel.dtype.kind != "f":
        raise ValueError(
            f"{path}: {mel.dtype} {mel.shape}, expected a floating-point mel of shape ({MEL_BINS}, frames), "
            f"as extract_mels.py --extract-mels writes it"
        )
    return mel.T.astype(np.float32)
