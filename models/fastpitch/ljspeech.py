"""The held-out lines of LJSpeech, with mels computed from its recordings."""

import wave
from pathlib import Path

import numpy as np
from mels import mel_filters, mel_of
from numpy.typing import NDArray
from speech import SAMPLE_RATE, WINDOW, Speech
from text import encode, pad

METADATA = "id|transcript|normalised transcript"


def read_lines(file: Path, dataset: Path, seq: int) -> Speech:
    """Read the lines of a published file list that the network can take, from LJSpeech-1.1 as it unpacks.

    Of each line of the list only the id is read, the name of its mel; text and recording are those of
    dataset/metadata.csv and dataset/wavs. Texts of more than seq symbols or with digits are left out. Raises
    ValueError naming file and line where something is not as published.
    """
    texts = _read_metadata(dataset / "metadata.csv")
    filters, rows, mels = mel_filters(), [], []
    lines = file.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        name = Path(line.split("|")[0]).stem
        text = texts.get(name)
        if text is None:
            raise ValueError(f"{file}:{number}: {name!r} is no line of {dataset / 'metadata.csv'}: {line!r}")
        if any(character.isdigit() for character in text) or len(encode(text)) > seq:
            continue
        rows.append(encode(text))
        mels.append(mel_of(_read_wav(dataset / "wavs" / f"{name}.wav"), filters))
    if not rows:
        raise ValueError(f"{file}: no line without digits and of at most {seq} symbols")
    print(f"{len(rows)} of {len(lines)} lines are free of digits and fit into {seq} symbols")
    return Speech(tokens=pad(rows, seq), mels=mels)


def _read_metadata(path: Path) -> dict[str, str]:
    """Id -> normalised transcript."""
    texts = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        columns = line.split("|")
        if len(columns) != len(METADATA.split("|")):
            raise ValueError(f"{path}:{number}: expected {METADATA}, found {len(columns)} columns: {line!r}")
        texts[columns[0]] = columns[2]
    return texts


def _read_wav(path: Path) -> NDArray[np.float64]:
    """Samples between -1 and 1 of a recording: mono, 16 bits, SAMPLE_RATE."""
    try:
        with wave.open(str(path), "rb") as file:
            found = file.getnchannels(), 8 * file.getsampwidth(), file.getframerate()
            data = file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise ValueError(f"{path}: cannot be read as a WAV file ({error})") from error
    if found != (1, 16, SAMPLE_RATE) or len(data) <= WINDOW:  # bytes; mirroring needs over half a window
        raise ValueError(
            f"{path}: {found[0]} channel(s) of {found[1]} bits at {found[2]} Hz, {len(data)} bytes; expected "
            f"1 of 16 bits at {SAMPLE_RATE} Hz, more than {WINDOW} bytes"
        )
    return np.frombuffer(data, "<i2") / 32768.0
