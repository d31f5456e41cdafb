"""The task metric: accuracy."""

from typing import Any


class MetricsCalculator:
    """Share of points whose largest logit is the label's."""

    def __init__(self) -> None:
        self._right = self._count = 0

    def update(self, ids: Any, y_pred: Any, x: Any, y_real: Any) -> None:
        """Count one batch."""
        same = y_pred["output__0"].argmax(axis=1) == y_real["output__0"].argmax(axis=1)
        self._right += int(same.sum())
        self._count += len(same)

    @property
    def metrics(self) -> dict[str, float]:
        """Metric name -> value; model.yaml names the one that gates."""
        return {"accuracy": self._right / self._count}
