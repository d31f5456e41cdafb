"""Batches of texts and their spoken mels for FastPitch."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from speech import MEL_BINS, read
from text import IDS, pad

Arrays = dict[str, NDArray[np.generic]]
Batch = tuple[NDArray[np.int64], Arrays, Arrays]


def get_dataloader_fn(
    seq: int, batch_size: int, speech_file: str | None = None
) -> Callable[[], Iterator[Batch]]:
    """Return a function whose iterator yields (ids, x, y_real) in file order; the last batch may be smaller.

    ids: int64 [b], line indices. x: INPUT__0 token ids, int64 [b, seq], 0 is padding. y_real: OUTPUT__0
    log-mels, float32 [b, 80, frames of the longest line in the file], zeros behind a line's end; OUTPUT__1
    frames of each line, int64 [b, 1]. Without a speech_file it yields made-up texts endlessly, with an empty
    y_real. Raises ValueError when batch_size is not positive or the file's texts are not padded to seq.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size {batch_size}: expected 1 or more")
    if speech_file is None:
        return lambda: _made_up(seq, batch_size)
    speech = read(speech_file)
    if speech.tokens.shape[1] != seq:
        raise ValueError(f"{speech_file}: texts of {speech.tokens.shape[1]} tokens, expected seq, {seq}")
    frames = np.array([[len(mel)] for mel in speech.mels])

    def batches() -> Iterator[Batch]:
        for first in range(0, len(frames), batch_size):
            rows = slice(first, first + batch_size)
            mels = np.zeros((len(frames[rows]), MEL_BINS, int(frames.max())), dtype=np.float32)
            for target, mel in zip(mels, speech.mels[rows], strict=True):
                target[:, : len(mel)] = mel.T
            ids = np.arange(first, first + len(mels))
            yield ids, {"INPUT__0": speech.tokens[rows]}, {"OUTPUT__0": mels, "OUTPUT__1": frames[rows]}

    return batches


def _made_up(seq: int, batch_size: int) -> Iterator[Batch]:
    """Lines of half to all of seq small letters, the same at every start."""
    rng, first, letters = np.random.default_rng(0), 0, [IDS["a"], IDS["z"] + 1]
    while True:
        lengths = rng.integers(seq // 2, seq + 1, size=batch_size)
        tokens = pad([rng.integers(*letters, size=length).tolist() for length in lengths], seq)
        yield np.arange(first, first + batch_size), {"INPUT__0": tokens}, {}
        first += batch_size
