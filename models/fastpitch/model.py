"""FastPitch from a published or a local checkpoint."""

import torch
from checkpoint import load
from network import FastPitch, Size


def get_model(
    seq: int,
    hidden: int,
    layers: int,
    head: int,
    filter_width: int,
    predictor: int,
    checkpoint: str | None = None,
) -> tuple[torch.nn.Module, dict[str, list[str]]]:
    """Build the network for texts of seq tokens, load the checkpoint, return it in eval mode.

    Without a checkpoint the weights are random, always the same. Raises ValueError that names the file and
    the error.
    """
    torch.manual_seed(0)
    size = Size(hidden=hidden, layers=layers, head=head, filter_width=filter_width, predictor=predictor)
    network = FastPitch(size, seq)
    if checkpoint is None:
        # Every duration is near START_DURATION: some random ones would lie near halves, and half precision
        # would round them the other way.
        torch.nn.init.uniform_(network.duration.last.weight, -0.002, 0.002)
    else:
        load(network, checkpoint)
    outputs = [f"OUTPUT__{index}" for index in range(4)]
    return network.eval(), {"inputs": ["INPUT__0"], "outputs": outputs}
