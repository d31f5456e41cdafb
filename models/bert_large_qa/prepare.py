"""Checkpoint, configuration, vocabulary and data set of each variant."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from squad import load_tokenizer
from windows import make_features

FILES = {
    "checkpoint": "checkpoint.pt",
    "config_file": "bert_config.json",
    "vocab_file": "vocab.txt",
    "predict_file": "dev.json",
}
SOURCES = {
    "checkpoint": "bert_large_qa.pt",
    "config_file": "bert_config.json",
    "vocab_file": "vocab.txt",
    "predict_file": "dev-v1.1.json",
}
DEV_QUESTIONS = 1024
DEFAULTS = {"max_seq_length": 64, "steps": 600, "seed": 0}


def prepare(variant: str, output: Path, sources: Path, parameters: dict[str, Any]) -> dict[str, str]:
    """Fill the folder `output`; returns keyword arguments of the other functions as file names in it.

    `full` copies the published files from `sources` and reads no parameter. `tiny` trains a small
    network on the shipped prose; it reads max_seq_length (tokens, 64), steps (600) and seed (0) from
    `parameters` and ignores the rest. Raises ValueError on another variant.
    """
    output.mkdir(parents=True, exist_ok=True)
    if variant == "full":
        for key, name in SOURCES.items():
            shutil.copyfile(sources / name, output / FILES[key])
    elif variant == "tiny":
        chosen = {key: int(parameters.get(key, default)) for key, default in DEFAULTS.items()}
        _make_tiny(output, **chosen)
    else:
        raise ValueError(f"unknown variant {variant!r}: expected full or tiny")
    return dict(FILES)


def _make_tiny(output: Path, max_seq_length: int, steps: int, seed: int) -> None:
    # Imported here: the full variant needs no torch.
    import torch
    from prose import build_vocabulary, cloze_examples, read_chapters, write_squad
    from tiny import BATCH, train

    rng = np.random.default_rng(seed)
    chapters, held_out = read_chapters()
    vocabulary = build_vocabulary(chapters)
    (output / FILES["vocab_file"]).write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    write_squad(cloze_examples(held_out, DEV_QUESTIONS, rng), output / FILES["predict_file"])
    examples = cloze_examples(chapters, steps * BATCH, rng)
    print(f"made {len(examples)} training and {DEV_QUESTIONS} dev questions", flush=True)
    tokenizer = load_tokenizer(output / FILES["vocab_file"])
    network = train(make_features(examples, tokenizer, max_seq_length), len(vocabulary), steps, seed)
    torch.save({"model": network.state_dict()}, output / FILES["checkpoint"])
    settings = json.dumps(network.config.to_diff_dict(), indent=2, sort_keys=True)
    (output / FILES["config_file"]).write_text(settings + "\n", encoding="utf-8")
