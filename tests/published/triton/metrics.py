"""A metric in the older published style: everything at once."""

from typing import Any, Dict, List, Optional  # noqa: UP035  # as those files write it

import numpy as np
from triton.deployment_toolkit.core import BaseMetricsCalculator


class MetricsCalculator(BaseMetricsCalculator):
    """Accuracy."""

    def __init__(self, *, output_used_for_metrics: str) -> None:
        self.output = output_used_for_metrics

    def calc(
        self,
        *,
        ids: List[Any],  # noqa: UP006
        x: Optional[Dict[str, np.ndarray]],  # noqa: UP006, UP045
        y_real: Optional[Dict[str, np.ndarray]],  # noqa: UP006, UP045
        y_pred: Dict[str, np.ndarray],  # noqa: UP006
    ) -> Dict[str, float]:  # noqa: UP006
        """Metric name -> value."""
        assert len(ids) == len(x["input__0"])
        same = y_pred[self.output].argmax(axis=1) == y_real[self.output].argmax(axis=1)
        return {"accuracy": float(same.mean())}
