"""The error of spoken mels against recorded ones."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from speech import MEL_BINS, SILENCE


class MetricsCalculator:
    """Mean absolute error of the log-mels over all frames, and of the number of frames."""

    def __init__(self) -> None:
        self._error = self._length_error = 0.0
        self._frames = self._lines = 0

    def update(
        self,
        ids: NDArray[Any],
        y_pred: Mapping[str, NDArray[Any]],
        x: Mapping[str, NDArray[Any]] | None = None,
        y_real: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Take one batch: OUTPUT__0 are mels [b, 80, frames], OUTPUT__1 the frames that count, [b, 1].

        A line is compared frame by frame over the longer of the two, the shorter one followed by silence.
        x belongs to the interface and is not used. Raises ValueError on other shapes or without y_real.
        """
        if not y_real:
            raise ValueError("y_real is empty: the metric needs the recorded mels")
        for name, values in (("y_pred", y_pred), ("y_real", y_real)):
            shape = values["OUTPUT__0"].shape
            if len(shape) != 3 or shape[:2] != (len(ids), MEL_BINS):
                raise ValueError(f"{name}: OUTPUT__0 has shape {shape}, expected ({len(ids)}, 80, frames)")
        for row in range(len(ids)):
            have, want = _line(y_pred, row), _line(y_real, row)
            frames = max(have.shape[1], want.shape[1])
            self._error += float(np.abs(_filled(have, frames) - _filled(want, frames)).sum()) / MEL_BINS
            self._length_error += abs(have.shape[1] - want.shape[1])
            self._frames += frames
            self._lines += 1

    @property
    def metrics(self) -> dict[str, float]:
        """`mel_error` in natural-log units, `length_error` in frames. Raises ValueError before any update."""
        if not self._frames:
            raise ValueError("no frame was seen: call update first")
        return {
            "mel_error": self._error / self._frames,
            "length_error": self._length_error / self._lines,
        }


def _line(values: Mapping[str, NDArray[Any]], row: int) -> NDArray[np.float64]:
    """The valid frames of a line, [80, frames]."""
    frames = int(np.asarray(values["OUTPUT__1"][row]).item())
    return np.asarray(values["OUTPUT__0"][row, :, :frames], dtype=np.float64)


def _filled(mel: NDArray[np.float64], frames: int) -> NDArray[np.float64]:
    return np.pad(mel, ((0, 0), (0, frames - mel.shape[1])), constant_values=SILENCE)
