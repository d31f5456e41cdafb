"""A small BERT that learns to find quoted words in well under a minute on a CPU."""

import math

import numpy as np
import torch
from transformers import BertConfig, BertForQuestionAnswering
from windows import Features

# All constants below were found by trial on held-out chapters.
HIDDEN, LAYERS, HEADS, INTERMEDIATE = 64, 2, 4, 128
BATCH = 64
LEARNING_RATE, WEIGHT_DECAY, WARM_UP = 5e-3, 0.01, 0.1
POSITION_SCALE, POSITION_BASE = 1.4, 1000.0
QUERY_SCALE = 1.4


def tiny_config(vocab_size: int, positions: int) -> BertConfig:
    """Configuration of the tiny network; `positions` is the sequence length in tokens."""
    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=INTERMEDIATE,
        max_position_embeddings=positions,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=HIDDEN**-0.5,
    )


def build(config: BertConfig) -> BertForQuestionAnswering:
    """Build the untrained network, drawing its weights from torch's global generator."""
    network = BertForQuestionAnswering(config)
    embeddings = network.bert.embeddings
    angle = torch.arange(config.max_position_embeddings)[:, None] * torch.exp(
        torch.arange(0, HIDDEN, 2) * (-math.log(POSITION_BASE) / HIDDEN)
    )
    with torch.no_grad():
        embeddings.word_embeddings.weight.normal_()
        embeddings.token_type_embeddings.weight.normal_()
        # Sinusoids (Vaswani et al. 2017, section 3.5): neighbours are alike before any training.
        embeddings.position_embeddings.weight[:, 0::2] = POSITION_SCALE * torch.sin(angle)
        embeddings.position_embeddings.weight[:, 1::2] = POSITION_SCALE * torch.cos(angle)
        weights = dict(network.named_parameters())
        for layer in range(LAYERS):
            attention = f"bert.encoder.layer.{layer}.attention.self"
            query = weights[f"{attention}.query.weight"].normal_(std=QUERY_SCALE * HIDDEN**-0.5)
            # Equal tokens attend to one another from the start; matching takes thousands of steps to emerge
            # from independent query and key weights.
            weights[f"{attention}.key.weight"].copy_(query)
    return network


def train(features: Features, vocab_size: int, steps: int, seed: int) -> BertForQuestionAnswering:
    """Train on the first steps x BATCH windows, once each, in order; prints the loss every 100 steps.

    Switches torch to deterministic algorithms: the same arguments on the same machine give the same weights.
    Raises ValueError when there are too few windows or one does not hold its answer.
    """
    needed = steps * BATCH
    if len(features.token_ids) < needed or (features.start[:needed] < 0).any():
        raise ValueError(f"{steps} steps need {needed} windows that hold their answer")
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    network = build(tiny_config(vocab_size, features.token_ids.shape[1]))
    network.train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=steps, pct_start=WARM_UP
    )
    width = int(features.attention_mask.sum(axis=1).max())  # tokens; the rest of every row is padding
    for step in range(steps):
        rows = slice(step * BATCH, (step + 1) * BATCH), slice(width)
        loss = network(
            input_ids=torch.from_numpy(features.token_ids[rows].astype(np.int64)),
            token_type_ids=torch.from_numpy(features.segment_ids[rows].astype(np.int64)),
            attention_mask=torch.from_numpy(features.attention_mask[rows].astype(np.int64)),
            start_positions=torch.from_numpy(features.start[rows[0]]),
            end_positions=torch.from_numpy(features.end[rows[0]]),
        ).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}/{steps} loss {loss.item():.2f}", flush=True)
    network.eval()
    return network
