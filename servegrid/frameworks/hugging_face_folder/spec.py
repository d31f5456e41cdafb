"""The `model.yaml` of a model folder that is made of a Hugging Face folder."""

from __future__ import annotations

from typing import Any

from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import Interface, Value
from servegrid.frameworks.fields import HuggingFaceFields
from servegrid.frameworks.hugging_face_folder.tasks import OPTIMIZERS

VARIANT = "hf"
OPSET = 17
FORMATS = {
    "ts-trace": {"export": "ts-trace", "precisions": ["fp32"]},
    "onnx": {"export": "onnx", "precisions": ["fp32", "fp16"]},
    "aoti": {"export": "torch-export", "precisions": ["fp32"]},
}
BOUNDS = {
    "fp32": (1e-4, {"relative": 1e-3, "cosine": 0.9999, "agreement": 0.999}),
    "fp16": (2e-2, {"relative": 2e-2, "cosine": 0.999, "agreement": 0.95}),
}
"""By precision: the absolute tolerance as a share of an output's largest value, and the others."""


class Attention(Value):
    """Layers, and heads and width of each."""

    layers: int
    heads: int
    width: int


class Found(Value):
    """What was found by running the network: its interface, the largest value of each output, the outputs
    that are left out, the number of samples, and its attention, if it is alike in all parts."""

    interface: Interface
    scales: dict[str, float]
    left_out: tuple[str, ...]
    samples: int
    model_type: str
    attention: Attention | None


def make_spec(fields: HuggingFaceFields, folder: str, found: Found) -> ModelSpec:
    """The spec; tolerances are shares of each output's largest value: its values may mean anything."""
    tolerances = {}
    for precision, (share, bounds) in BOUNDS.items():
        own = {name: {"absolute": share * scale, **bounds} for name, scale in found.scales.items()}
        tolerances[precision] = {"absolute": share, **bounds, "outputs": own}
    left_out = f"; not served: {'; '.join(found.left_out)}" if found.left_out else ""
    parameters: dict[str, Any] = {"auto_class": fields.auto_class}
    if fields.pooling != "none":
        parameters |= {"pooling": fields.pooling, "normalize": fields.normalize}
    variant = {
        "parameters": parameters,
        "samples": found.samples,
        "convert": _convert(found),
        "serving": {
            "max_batch_size": 8,
            "preferred_batch_sizes": [4, 8],
            "max_queue_delay_us": 1,
            "load_timeout_s": 300,
        },
        "offline": {"batch_sizes": [1, 4, 8]},
        "online": {"client_batch": 1, "concurrency": [1, 4, 16]},
    }
    return ModelSpec.model_validate(
        {
            "name": fields.name,
            "description": f"{fields.task}, made of the Hugging Face folder {folder}{left_out}",
            "framework": "torch",
            "requires": fields.requires,
            "opset": OPSET,
            **found.interface.model_dump(),
            "formats": FORMATS,
            "tolerances": tolerances,
            "variants": {VARIANT: variant},
        }
    )


def _convert(found: Found) -> dict[str, Any]:
    """Fusion, where ONNX Runtime's optimizer knows the type."""
    known = OPTIMIZERS.get(found.model_type)
    if known is None or found.attention is None:
        return {}
    operators = ("Attention", "SkipLayerNormalization") if known == "bert" else ("SkipLayerNormalization",)
    options = {
        "model_type": known,
        "num_heads": found.attention.heads,
        "hidden_size": found.attention.width,
        "fused": dict.fromkeys(operators, found.attention.layers),
    }
    return {"onnx": {"optimize": options}}
