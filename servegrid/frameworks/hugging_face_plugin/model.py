"""The network of a checkpoint, with plain tensors in and out, by the names in model.yaml."""

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml

POOLER = "pooler."
EMBEDDING = "sentence_embedding"


class Served(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
    """A network that takes tensors in the order of `inputs` and gives those of its ModelOutput by name.

    pooling: `mean` or `cls` makes one embedding a sample of the last hidden state; `none`: outputs are the
    network's own.
    """

    def __init__(
        self,
        network: Any,
        inputs: list[str],
        outputs: list[str],
        pooling: str = "none",
        normalize: bool = False,
    ) -> None:
        super().__init__()
        self.network = network
        self.inputs, self.outputs = inputs, outputs
        self.pooling, self.normalize = pooling, normalize

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.named(*tensors)
        return tuple(found[name] for name in self.outputs)

    def named(self, *tensors: torch.Tensor) -> dict[str, torch.Tensor]:
        """Every output of one call, by name."""
        # ONNX Runtime fuses the eager form of attention into one operator; PyTorch's own is faster elsewhere.
        self.network.set_attn_implementation("eager" if torch.onnx.is_in_onnx_export() else "sdpa")
        x = dict(zip(self.inputs, tensors, strict=True))
        answer = self.network(**x, return_dict=True)
        if self.pooling == "none":
            return dict(flatten(answer))
        embedding = _pool(answer.last_hidden_state, x["attention_mask"], self.pooling)
        return {EMBEDDING: torch.nn.functional.normalize(embedding, dim=1) if self.normalize else embedding}


def flatten(answer: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a ModelOutput; those of a part or a tuple have its name before theirs."""
    for name, value in answer.items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, tuple):
            yield from ((f"{name}_{key}", v) for key, v in flatten({str(i): v for i, v in enumerate(value)}))
        elif isinstance(value, Mapping):
            yield from ((f"{name}_{key}", v) for key, v in flatten(value))


def load_network(checkpoint: str, auto_class: str) -> Any:
    """The network in fp32. Weights are read from safetensors only, and no code of the folder is run. Of a
    network that also has a decoder it is the encoder.

    Raises:
        ValueError: weights of the network are not in the checkpoint.
    """
    auto = getattr(transformers, auto_class)
    network, missing = _read(auto, checkpoint)
    if missing and all(name.startswith(POOLER) for name in missing):
        network, missing = _read(auto, checkpoint, add_pooling_layer=False)
    if missing:
        raise ValueError(
            f"the checkpoint lacks weights of {type(network).__name__}: {', '.join(missing[:3])}"
        )
    return network.get_encoder() if network.config.is_encoder_decoder else network


def _read(auto: Any, checkpoint: str, **more: Any) -> tuple[Any, list[str]]:
    network, found = auto.from_pretrained(
        checkpoint,
        dtype=torch.float32,
        local_files_only=True,
        output_loading_info=True,
        trust_remote_code=False,
        use_safetensors=True,
        **more,
    )
    return network.eval(), sorted(found["missing_keys"])


def arguments(network: Any) -> list[str]:
    """The names that its forward takes."""
    return list(inspect.signature(network.forward).parameters)


def _pool(states: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """[b, length, width] -> [b, width]: the mean over the tokens that the mask keeps, or the first token."""
    if pooling == "cls":
        return states[:, 0]
    weights = mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)


def get_model(
    checkpoint: str, auto_class: str, pooling: str = "none", normalize: bool = False
) -> tuple[torch.nn.Module, dict[str, list[str]]]:
    """The network, with the inputs and outputs of model.yaml: an output may be taken out there."""
    spec = yaml.safe_load(Path(__file__).with_name("model.yaml").read_text(encoding="utf-8"))
    names = {kind: [tensor["name"] for tensor in spec[kind]] for kind in ("inputs", "outputs")}
    module = Served(load_network(checkpoint, auto_class), **names, pooling=pooling, normalize=normalize)
    return module.eval(), names
