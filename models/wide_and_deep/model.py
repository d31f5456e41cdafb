"""Wide & Deep for click prediction, from a published or a local checkpoint."""

from collections.abc import Callable
from typing import Any

import keras
from checkpoint import load
from columns import OUTPUT, tables_of
from network import build

Call = Callable[[dict[str, Any]], dict[str, Any]]


def get_model(
    feature_set: str, hidden_units: int, hidden_layers: int, combiner: str, checkpoint: str | None = None
) -> tuple[keras.Model, Call]:
    """The network and a function of one dict of columns -> {"wide_deep_model": click probability [b, 1]}.

    feature_set: `published` or `tiny`. checkpoint: a folder in the published format; without it the weights
    are random, always the same. Raises ValueError on an unknown name and on a checkpoint that does not fit.
    """
    keras.utils.set_random_seed(0)
    model = build(tables_of(feature_set), hidden_units, hidden_layers, combiner)
    if checkpoint is not None:
        load(model, checkpoint)

    def call(x: dict[str, Any]) -> dict[str, Any]:
        return {OUTPUT: model(x, training=False)}

    return model, call
