"""Batches of SQuAD windows for BERT."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from squad import load_tokenizer, read_examples
from windows import make_features

Arrays = dict[str, NDArray[np.generic]]
Batch = tuple[NDArray[np.int64], Arrays, Arrays]


VOCABULARY = range(1000, 30522)  # of BERT uncased; the ids below are special tokens and placeholders


def get_dataloader_fn(
    max_seq_length: int, batch_size: int, predict_file: str | None = None, vocab_file: str | None = None
) -> Callable[[], Iterator[Batch]]:
    """Return a function whose iterator yields (ids, x, y_real) in file order; the last batch may be smaller.

    ids: int64 [b], window indices. x: input__0 token ids, input__1 segment ids, input__2 attention mask, each
    int32 [b, max_seq_length]. y_real: output__0 and output__1, float32 [b, max_seq_length], 1 at the start
    and at the end token of the first gold answer, all zero where the window does not hold it. Without the two
    files it yields seeded random token ids without labels, endlessly. Raises ValueError when batch_size is
    not positive or a file is not what it should be.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size {batch_size}: expected 1 or more")
    if predict_file is None or vocab_file is None:
        return lambda: _random(max_seq_length, batch_size)
    features = make_features(read_examples(predict_file), load_tokenizer(vocab_file), max_seq_length)

    def batches() -> Iterator[Batch]:
        for first in range(0, len(features.token_ids), batch_size):
            rows = slice(first, first + batch_size)
            x: Arrays = {
                "input__0": features.token_ids[rows],
                "input__1": features.segment_ids[rows],
                "input__2": features.attention_mask[rows],
            }
            y_real: Arrays = {
                "output__0": _one_hot(features.start[rows], max_seq_length),
                "output__1": _one_hot(features.end[rows], max_seq_length),
            }
            yield np.arange(first, first + len(x["input__0"])), x, y_real

    return batches


def _random(length: int, batch_size: int) -> Iterator[Batch]:
    """Windows of half to full length, their first quarter the question; y_real is empty."""
    rng = np.random.default_rng(0)
    for first in itertools.count(step=batch_size):
        ids = rng.integers(VOCABULARY.start, VOCABULARY.stop, (batch_size, length), dtype=np.int32)
        lengths = rng.integers(length // 2, length + 1, (batch_size, 1))
        mask = (np.arange(length) < lengths).astype(np.int32)
        segments = (np.arange(length) >= length // 4).astype(np.int32) * mask
        x: Arrays = {"input__0": ids * mask, "input__1": segments, "input__2": mask}
        yield np.arange(first, first + batch_size), x, {}


def _one_hot(positions: NDArray[np.int64], length: int) -> NDArray[np.float32]:
    """float32 [b, length], 1 at each row's position; a position of -1 matches no column."""
    hot: NDArray[np.float32] = (np.arange(length) == positions[:, None]).astype(np.float32)
    return hot
