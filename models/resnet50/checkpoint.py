"""TensorFlow 1 checkpoints: variables by name, in the files PREFIX.index and PREFIX.data-*."""

from pathlib import Path

import keras
import tensorflow as tf
from network import SCOPE, published_names

INDEX = ".index"
SLOT = "/Momentum"  # the optimizer's copy of a variable


def restore(network: keras.Model, index: str) -> None:
    """Set every variable of the network from the checkpoint whose .index file is named.

    What only training needs is passed over: optimizer slots, and what lies outside of the network's scope
    (global_step, loss scaling). Raises ValueError that lists what is missing, left over or of another shape.
    """
    try:
        reader = tf.train.load_checkpoint(index.removesuffix(INDEX))
        stored = reader.get_variable_to_shape_map()
    except (tf.errors.OpError, ValueError) as error:
        raise ValueError(f"{index}: not the index of a complete TensorFlow checkpoint ({error})") from error
    found = {k: tuple(v) for k, v in stored.items() if k.startswith(f"{SCOPE}/") and not k.endswith(SLOT)}
    wanted = published_names(network)
    problems = {
        "missing": [name for name in wanted if name not in found],
        "unexpected": [name for name in sorted(found) if name not in wanted],
        "wrong shapes": [
            f"{name} has {found[name]}, expected {tuple(variable.shape)}"
            for name, variable in wanted.items()
            if name in found and found[name] != tuple(variable.shape)
        ],
    }
    listed = [f"{title}: {', '.join(names)}" for title, names in problems.items() if names]
    if listed:
        raise ValueError(f"{index} does not fit the network; {'; '.join(listed)}")
    for name, variable in wanted.items():
        variable.assign(reader.get_tensor(name))


def save(network: keras.Model, index: Path) -> None:
    """Write the network's variables under their published names; `index` ends in .index."""
    named = published_names(network)
    tf.raw_ops.SaveV2(
        prefix=str(index).removesuffix(INDEX),
        tensor_names=list(named),
        shape_and_slices=[""] * len(named),
        tensors=[variable.value for variable in named.values()],
    )
