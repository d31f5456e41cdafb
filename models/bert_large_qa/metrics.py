"""SQuAD v1.1 F1 and exact match of a question answering model."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spans import best_spans, exact_match, f1_score
from squad import load_tokenizer, read_examples
from windows import make_features


class MetricsCalculator:
    """Collects the best span of each question over its windows; scores only the questions that were seen."""

    def __init__(self, predict_file: str, vocab_file: str, max_seq_length: int) -> None:
        """Rebuild the windows that the data loader makes of the same three arguments."""
        self._examples = read_examples(predict_file)
        self._features = make_features(self._examples, load_tokenizer(vocab_file), max_seq_length)
        self._best: dict[int, tuple[float, str]] = {}

    def update(
        self,
        ids: NDArray[np.int64],
        y_pred: Mapping[str, NDArray[Any]],
        x: Mapping[str, NDArray[Any]] | None = None,
        y_real: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Take one batch: ids are window indices [b]; output__0 and output__1 are logits, float [b, seq].

        x and y_real belong to the interface and are not used. Raises ValueError on other shapes.
        """
        rows = np.asarray(ids, dtype=np.int64)
        begin, end = self._features.char_begin[rows], self._features.char_end[rows]
        for name in ("output__0", "output__1"):
            if y_pred[name].shape != begin.shape:
                raise ValueError(f"{name}: shape {y_pred[name].shape}, expected {begin.shape} (batch, seq)")
        scores, firsts, lasts = best_spans(y_pred["output__0"], y_pred["output__1"], begin >= 0)
        for row, (index, score) in enumerate(zip(self._features.example_index[rows], scores, strict=True)):
            text = ""
            if np.isfinite(score):
                text = self._examples[index].context[begin[row, firsts[row]] : end[row, lasts[row]]]
            if int(index) not in self._best or score > self._best[int(index)][0]:
                self._best[int(index)] = (float(score), text)

    @property
    def predictions(self) -> dict[str, str]:
        """Answer text by question id, for the questions seen so far, in the order of the file."""
        return {self._examples[index].id: self._best[index][1] for index in sorted(self._best)}

    @property
    def metrics(self) -> dict[str, float]:
        """Means over the seen questions of the best score against any gold answer, both 0..1.

        Raises ValueError before the first update.
        """
        if not self._best:
            raise ValueError("no question was seen: call update first")
        f1, exact = 0.0, 0.0
        for index, (_, text) in self._best.items():
            answers = [answer for answer, _ in self._examples[index].answers]
            f1 += max((f1_score(text, answer) for answer in answers), default=0.0)
            exact += max((exact_match(text, answer) for answer in answers), default=0.0)
        return {"f1": f1 / len(self._best), "exact_match": exact / len(self._best)}
