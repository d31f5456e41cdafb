"""nnU-Net for 3D segmentation, as MONAI's DynUNet, with published, trained or random weights."""

import torch
from network import build, load_weights

SEED = 0  # of the weights, where there is no checkpoint


def get_model(
    channels: int, classes: int, levels: int, filters: int, checkpoint: str | None = None
) -> tuple[torch.nn.Module, dict[str, list[str]]]:
    """Build the network, load the checkpoint strictly where there is one, return it in eval mode.

    It maps INPUT__0, float [b, channels, size, size, size] of normalised intensities, to OUTPUT__0, float [b,
    classes, size, size, size]: logits. The published deployment takes the argmax inside the network; here the
    reader of the answer does, so that outputs can be compared by their distance. `size` must be a multiple of
    2 ** (levels - 1). Raises ValueError where the checkpoint does not fit.
    """
    torch.manual_seed(SEED)
    network = build(channels, classes, levels, filters)
    if checkpoint is not None:
        load_weights(network, checkpoint)
    return network.eval(), {"inputs": ["INPUT__0"], "outputs": ["OUTPUT__0"]}
