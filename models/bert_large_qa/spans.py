"""Best answer spans from start and end logits, and the official SQuAD v1.1 scores of an answer text."""

import re
import string
from collections import Counter

import numpy as np
from numpy.typing import ArrayLike, NDArray

N_BEST = 20  # start and end candidates each; default of the published BERT SQuAD script (n_best_size)
MAX_ANSWER_LENGTH = 30  # tokens; same script, max_answer_length


def best_spans(
    start_logits: ArrayLike, end_logits: ArrayLike, context: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Per row the highest start + end logit over the N_BEST x N_BEST candidates inside the context.

    start_logits, end_logits: float [b, seq]; context: bool [b, seq]. Returns (score, start, end), each [b],
    end inclusive; score is -inf where a row has no valid span (no finite logit among the context tokens).
    """
    starts, start_scores = _candidates(start_logits, context)
    ends, end_scores = _candidates(end_logits, context)
    length = ends[:, None, :] - starts[:, :, None] + 1
    total = start_scores[:, :, None] + end_scores[:, None, :]
    total = np.where((length >= 1) & (length <= MAX_ANSWER_LENGTH), total, np.float32(-np.inf))
    flat = total.reshape(len(total), -1)
    best = flat.argmax(axis=1)
    row = np.arange(len(best))
    columns = total.shape[2]
    return flat[row, best], starts[row, best // columns], ends[row, best % columns]


def _candidates(
    logits: ArrayLike, context: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Positions and logits of the N_BEST highest context tokens per row, highest first, ties by position."""
    values = np.asarray(logits, dtype=np.float32)
    values = np.where(context & np.isfinite(values), values, np.float32(-np.inf))
    order = np.argsort(-values, axis=1, kind="stable")[:, :N_BEST]
    return order, np.take_along_axis(values, order, axis=1)


def normalize_answer(text: str) -> str:
    """Lower-case, drop ASCII punctuation, then the articles, then extra blanks (SQuAD v1.1 evaluation)."""
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def exact_match(prediction: str, answer: str) -> float:
    """1.0 when both texts are equal after normalisation, else 0.0."""
    return float(normalize_answer(prediction) == normalize_answer(answer))


def f1_score(prediction: str, answer: str) -> float:
    """Harmonic mean of token precision and recall over the normalised words (SQuAD v1.1 evaluation), 0..1."""
    predicted, wanted = normalize_answer(prediction).split(), normalize_answer(answer).split()
    common = sum((Counter(predicted) & Counter(wanted)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(wanted)
    return 2 * precision * recall / (precision + recall)
