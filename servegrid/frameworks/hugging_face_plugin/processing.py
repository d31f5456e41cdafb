"""Texts, images and audio as the network's inputs, by the folder's own tokenizer and processors."""

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoConfig, AutoFeatureExtractor, AutoImageProcessor, AutoTokenizer

Sample = dict[str, Any]
"""`text`, `text_pair`, `image` (a path or uint8 [height, width, 3]) and `audio` (a path or float [n]), as far
as the network takes them."""
KEYS: dict[str, str] = {"question": "text", "context": "text_pair"}
"""Other names of keys in a file of samples."""
IMAGES, AUDIO = (".bmp", ".jpeg", ".jpg", ".png", ".webp"), (".wav",)
SAFE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


class Processor:
    """The folder's tokenizer, image processor and feature extractor: those for the network's arguments."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        self.arguments = arguments
        self.tokenizer = self.images = self.audio = None
        if "input_ids" in arguments:
            self.tokenizer = AutoTokenizer.from_pretrained(folder, **SAFE)
            self.longest = _longest(self.tokenizer, AutoConfig.from_pretrained(folder, **SAFE))
        if "pixel_values" in arguments:
            self.images = AutoImageProcessor.from_pretrained(folder, **SAFE)
        if {"input_features", "input_values"} & {*arguments} and self.images is None:
            self.audio = AutoFeatureExtractor.from_pretrained(folder, **SAFE)

    def __call__(self, samples: list[Sample]) -> dict[str, Any]:
        """An array for each input, in the order of the network's arguments; texts and audio are padded to the
        longest.

        Raises:
            ValueError: a sample lacks what the network takes.
        """
        found: dict[str, Any] = {}
        if self.tokenizer is not None:
            pairs = _values(samples, "text_pair") if "text_pair" in samples[0] else None
            found |= self.tokenizer(
                _values(samples, "text"),
                pairs,
                padding=True,
                truncation=True,
                max_length=self.longest,
                return_tensors="np",
            )
        if self.images is not None:
            found |= self.images([_image(value) for value in _values(samples, "image")], return_tensors="np")
        if self.audio is not None:
            rate = self.audio.sampling_rate
            waves = [_wave(value, rate) for value in _values(samples, "audio")]
            # Whisper's windows have one length, which its own padding gives; other waves get the longest's.
            whole = {} if "input_features" in self.arguments else {"padding": True}
            found |= self.audio(waves, sampling_rate=rate, return_tensors="np", **whole)
        arrays = {name: np.asarray(found[name]) for name in self.arguments if name in found}
        return {name: a if a.dtype.kind == "f" else a.astype(np.int64) for name, a in arrays.items()}


def read_samples(path: Path) -> list[Sample]:
    """The samples of a .jsonl file, whose lines are texts or objects, or the images or .wav files of a
    folder, by name. A path in a line is relative to the file.

    Raises:
        ValueError: a line is neither, or the folder has no such files.
    """
    if path.is_dir():
        for key, endings in (("image", IMAGES), ("audio", AUDIO)):
            if found := sorted(p for p in path.iterdir() if p.suffix.lower() in endings):
                return [{key: str(p)} for p in found]
        raise ValueError(f"no files {', '.join((*IMAGES, *AUDIO))} in it")
    samples = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            samples.append(_sample(line, number, path.parent))
    if not samples:
        raise ValueError("no lines in it")
    return samples


def _sample(line: str, number: int, folder: Path) -> Sample:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise ValueError(f"line {number}: not JSON: {error}") from error
    if isinstance(entry, str):
        return {"text": entry}
    if not isinstance(entry, dict):
        raise ValueError(f"line {number}: a text or an object is expected")
    found: Sample = {KEYS.get(str(key), str(key)): value for key, value in entry.items()}
    files = {key: str(folder / found[key]) for key in ("image", "audio") if key in found}
    return found | files


def _longest(tokenizer: Any, config: Any) -> int:
    """The most tokens of a text: as the tokenizer says or, where it does not, as the network has positions,
    but for two, because RoBERTa's begin at 2."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    positions = getattr(text, "max_position_embeddings", None) or tokenizer.model_max_length
    said = tokenizer.model_max_length
    return int(said if said <= positions else max(positions - 2, 1))


def _values(samples: list[Sample], key: str) -> list[Any]:
    for number, sample in enumerate(samples, 1):
        if key not in sample:
            raise ValueError(f"sample {number} has no {key!r}; it has: {', '.join(sample)}")
    return [sample[key] for sample in samples]


def _image(value: Any) -> Any:
    from PIL import Image

    return Image.open(value).convert("RGB") if isinstance(value, str) else Image.fromarray(value)


def _wave(value: Any, rate: int) -> Any:
    """Mono, float32 in -1..1."""
    if not isinstance(value, str):
        return value
    with wave.open(value) as file:
        if (file.getsampwidth(), file.getframerate()) != (2, rate):
            raise ValueError(f"{value}: 16-bit samples at {rate} Hz are expected")
        frames = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        return frames.reshape(-1, file.getnchannels()).mean(1).astype(np.float32) / 2**15
