"""Texts and their log-mel spectrograms: the shipped file, and the file that the data loader reads."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from text import encode, pad

# Published FastPitch, extract_mels.py: sampling rate in Hz, hop and window in samples.
SAMPLE_RATE, FRAME_STEP, WINDOW = 22050, 256, 1024
MEL_BINS = 80
SILENCE = float(np.log(1e-5))  # natural log of the least magnitude, published common/audio_processing.py
STEP = 0.25  # data/speech.npz holds log-mels as whole numbers of steps above SILENCE

SHIPPED = Path(__file__).parent / "data" / "speech.npz"
HELD_OUT = 128  # the last lines of data/speech.npz, never trained on


@dataclass(frozen=True)
class Speech:
    """n lines. tokens int64 [n, seq], 0 is padding; mels: float32 [frames, 80] for each line, natural log."""

    tokens: NDArray[np.int64]
    mels: list[NDArray[np.float32]]


@dataclass(frozen=True)
class Shipped:
    """data/speech.npz, without the held-out lines: n lines, of which the last ones have mels.

    tokens int64 [n, seq]; durations int64 [n, seq] in frames; pitches float32 [n, seq] in standard deviations
    from the mean, 0 where unvoiced; `spoken` has the last lines once more, with their mels.
    """

    tokens: NDArray[np.int64]
    durations: NDArray[np.int64]
    pitches: NDArray[np.float32]
    spoken: Speech


def read_shipped(seq: int) -> tuple[Shipped, Speech]:
    """The lines to train on, and the held-out ones. Raises ValueError where one is longer than seq."""
    with np.load(SHIPPED) as file:
        lines = [encode(str(line)) for line in file["lines"]]
        ends = np.cumsum([len(line) for line in lines])[:-1]
        durations, pitches = (_rows(np.split(file[k], ends), seq) for k in ("durations", "pitches"))
        frames = durations.sum(axis=1)[-int(file["with_mels"]) :]
        mels = np.float32(SILENCE) + np.float32(STEP) * file["mels"]
    tokens, spoken = pad(lines, seq), np.split(mels, np.cumsum(frames)[:-1])
    train, voiced = slice(-HELD_OUT), pitches[:-HELD_OUT][pitches[:-HELD_OUT] > 0]
    scaled = np.where(pitches > 0, (pitches - voiced.mean()) / voiced.std(), 0).astype(np.float32)
    learnt = Speech(tokens=tokens[-len(spoken) : -HELD_OUT], mels=spoken[train])
    shipped = Shipped(tokens[train], durations[train], scaled[train], learnt)
    return shipped, Speech(tokens=tokens[-HELD_OUT:], mels=spoken[-HELD_OUT:])


def _rows(parts: list[NDArray[np.uint8]], seq: int) -> NDArray[np.int64]:
    return pad([part.tolist() for part in parts], seq)


def write(speech: Speech, path: Path) -> None:
    """Write the file that `read` reads: tokens, all frames one after the other, frames of each line."""
    frames = np.array([len(mel) for mel in speech.mels])
    np.savez(path, allow_pickle=False, tokens=speech.tokens, mels=np.concatenate(speech.mels), frames=frames)


def read(path: str | Path) -> Speech:
    """Read a file of `write`."""
    with np.load(path) as file:
        mels = np.split(file["mels"], np.cumsum(file["frames"])[:-1])
        return Speech(tokens=file["tokens"], mels=mels)
