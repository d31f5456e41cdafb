"""BERT for extractive question answering, from a published or a local checkpoint, or with random weights."""

import json
import pickle
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForQuestionAnswering

MASKED = -10000.0  # added to the scores of padding, as in the published BERT code; representable in fp16
VOCAB_MULTIPLE = 8  # the published training code pads the vocabulary to this multiple (30522 -> 30528)
WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
POOLER_KEYS = ("bert.pooler.dense_act.weight", "bert.pooler.dense_act.bias")  # published, unused by a QA head
LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "vocab_size": 30528,
}
"""BERT-large, uncased (arXiv:1810.04805, section 3), its vocabulary padded as published."""
PUBLISHED_DENSE, DENSE = ".intermediate.dense_act.", ".intermediate.dense."


class QuestionAnswering(torch.nn.Module):  # type: ignore[misc]
    """BertForQuestionAnswering with the published input order and plain tensors as outputs."""

    def __init__(self, network: BertForQuestionAnswering) -> None:
        super().__init__()
        self.network = network
        # Tracing reads every property, and transformers knows no loss of a bare BertModel: it would warn.
        network.bert.loss_type = network.loss_type

    def forward(
        self, input__0: torch.Tensor, input__1: torch.Tensor, input__2: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids, segment ids, mask, each int32 [b, seq] -> start and end logits, float [b, seq]."""
        # ONNX Runtime fuses the eager form of attention into one operator; PyTorch's own is faster elsewhere.
        self.network.set_attn_implementation("eager" if torch.onnx.is_in_onnx_export() else "sdpa")
        # The library's own mask bakes fp32 into a trace, so that a traced module could not be halved later;
        # this form follows the weights' dtype, and ONNX Runtime's attention fusion knows it.
        square = input__2.unsqueeze(1).unsqueeze(2).expand(-1, -1, input__2.shape[1], -1)
        padding = 1.0 - square.type_as(self.network.qa_outputs.weight)
        answer = self.network(
            input_ids=input__0.long(),
            token_type_ids=input__1.long(),
            attention_mask=padding.masked_fill(padding.bool(), MASKED),
        )
        return answer.start_logits, answer.end_logits


def get_model(
    checkpoint: str | None = None, config_file: str | None = None
) -> tuple[torch.nn.Module, dict[str, list[str]]]:
    """Build the network of a BERT config file, load the checkpoint strictly, return it in eval mode.

    checkpoint: a torch.save file, {"model": state_dict} or a bare state_dict, with transformers' or the
    published key names. Without the two files the network is BERT-large with seeded random weights.
    Raises ValueError naming the file and the keys that are missing, unexpected or of another shape.
    """
    names = {"inputs": ["input__0", "input__1", "input__2"], "outputs": ["output__0", "output__1"]}
    if checkpoint is None or config_file is None:
        torch.manual_seed(0)
        network = BertForQuestionAnswering(BertConfig(**LARGE))
        return QuestionAnswering(network).eval(), names
    state = _read_state(checkpoint)
    settings = json.loads(Path(config_file).read_text(encoding="utf-8"))
    config = BertConfig(**settings)
    padded = -(-config.vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE
    if WORD_EMBEDDINGS in state and state[WORD_EMBEDDINGS].shape[0] == padded:
        config.vocab_size = padded
    network = BertForQuestionAnswering(config)
    _check(state, network.state_dict(), checkpoint, config_file)
    network.load_state_dict(state)
    return QuestionAnswering(network).eval(), names


def _read_state(checkpoint: str) -> dict[str, torch.Tensor]:
    """Read the weights and bring published key names to transformers' names."""
    try:
        loaded: Any = torch.load(checkpoint, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, EOFError) as error:
        raise ValueError(f"{checkpoint}: not a checkpoint that holds weights only ({error})") from error
    state = loaded.get("model", loaded) if isinstance(loaded, dict) else loaded
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ValueError(f'{checkpoint}: expected {{"model": state_dict}} or a state_dict of tensors')
    return {k.replace(PUBLISHED_DENSE, DENSE): v for k, v in state.items() if k not in POOLER_KEYS}


def _check(
    state: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], checkpoint: str, config_file: str
) -> None:
    """Raise one ValueError that lists every difference between the checkpoint and the network."""
    missing = [key for key in expected if key not in state]
    unexpected = [key for key in state if key not in expected]
    shapes = [
        f"{key} has {tuple(state[key].shape)}, expected {tuple(value.shape)}"
        for key, value in expected.items()
        if key in state and state[key].shape != value.shape
    ]
    found = {"missing keys": missing, "unexpected keys": unexpected, "wrong shapes": shapes}
    problems = [f"{title}: {', '.join(items)}" for title, items in found.items() if items]
    if problems:
        raise ValueError(f"{checkpoint} does not fit {config_file}; {'; '.join(problems)}")
