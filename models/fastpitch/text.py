"""Text as the symbols of the published FastPitch, and symbols as token ids."""

import re
import unicodedata

import numpy as np
from numpy.typing import NDArray

PADDING = 0
SYMBOLS = "_-!'(),.:;? ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The first 64 of the 148 symbols of NVIDIA DeepLearningExamples, PyTorch/SpeechSynthesis/FastPitch,
common/text/symbols.py; the first is padding. The others are phonemes, and no text is turned into them."""

ABBREVIATIONS = {
    "mrs": "misess", "mr": "mister", "dr": "doctor", "st": "saint", "co": "company", "jr": "junior",
    "maj": "major", "gen": "general", "drs": "doctors", "rev": "reverend", "lt": "lieutenant",
    "hon": "honorable", "sgt": "sergeant", "capt": "captain", "esq": "esquire", "ltd": "limited",
    "col": "colonel", "ft": "fort",
}  # fmt: skip
"""Spoken out as in the published pre-processing (same project, common/text/cleaners.py, english_cleaners)."""


def clean(text: str) -> str:
    """ASCII, lower case, abbreviations spelt out, single blanks.

    Raises ValueError on digits: the transcripts of LJSpeech write numbers as words, and nothing here does.
    """
    if digits := re.findall(r"\d+", text):
        raise ValueError(f"text has the number {digits[0]!r}: write it in words ({text!r})")
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii").lower()
    spoken = re.sub(r"\b([a-z]+)\.", lambda match: ABBREVIATIONS.get(match[1], match[0]), ascii_text)
    return " ".join(spoken.split())


def encode(text: str) -> list[int]:
    """Token ids of a text; characters that are no symbol are left out. Raises ValueError on digits."""
    return [IDS[character] for character in clean(text) if character in IDS]


def pad(rows: list[list[int]], seq: int) -> NDArray[np.int64]:
    """Token ids [rows, seq] with padding behind. Raises ValueError where a row is longer than seq."""
    tokens = np.full((len(rows), seq), PADDING, dtype=np.int64)
    for index, row in enumerate(rows):
        if len(row) > seq:
            raise ValueError(f"text has {len(row)} symbols, more than the {seq} that the network takes")
        tokens[index, : len(row)] = row
    return tokens


IDS = {symbol: index for index, symbol in enumerate(SYMBOLS) if index != PADDING}
