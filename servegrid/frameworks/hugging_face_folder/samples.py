"""Made-up samples for a network whose person gave none."""

from __future__ import annotations

from typing import Any

import numpy as np

from servegrid.frameworks.hugging_face_plugin.processing import Processor, Sample

TEXTS, IMAGES, WAVES = 64, 64, 16
WORDS = (3, 25)
"""Of a text: the fewest, and the most."""
SECONDS = (0.5, 2.0)
SIDE = 224


def made_up(processor: Processor, config: Any, *, pairs: bool) -> list[Sample]:
    """Seeded samples: texts of words in the tokenizer's vocabulary, random pixels, and noise."""
    rng = np.random.default_rng(0)
    counts = []
    samples: dict[str, list[Any]] = {}
    if processor.tokenizer is not None:
        counts.append(TEXTS)
        samples["text"] = _texts(processor.tokenizer, rng)
        if pairs:
            samples["text_pair"] = _texts(processor.tokenizer, rng)
    if processor.images is not None:
        counts.append(IMAGES)
        side = getattr(getattr(config, "vision_config", config), "image_size", SIDE)
        size = (side, side) if isinstance(side, int) else tuple(side)
        samples["image"] = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for _ in range(IMAGES)]
    if processor.audio is not None:
        counts.append(WAVES)
        lengths = (rng.uniform(*SECONDS, WAVES) * processor.audio.sampling_rate).astype(int)
        samples["audio"] = [rng.normal(0, 0.1, length).astype(np.float32) for length in lengths]
    return [{key: values[i] for key, values in samples.items()} for i in range(min(counts, default=0))]


def _texts(tokenizer: Any, rng: np.random.Generator) -> list[str]:
    vocabulary = sorted(tokenizer.get_vocab())
    words = [token for token in vocabulary if token.isalpha()] or vocabulary
    return [" ".join(rng.choice(words, rng.integers(*WORDS))) for _ in range(TEXTS)]
