"""Cloze questions on shipped prose, as SQuAD v1.1 data, and the vocabulary for them."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from squad import SPECIAL_TOKENS, Example
from tokenizers.pre_tokenizers import BertPreTokenizer

PROSE = Path(__file__).parent / "data" / "prose.txt"
HELD_OUT_EVERY = 5  # chapters; a fifth of the text is never trained on
WINDOW = 42  # words of context; with the question and special tokens at most 58 of 64 positions
QUOTE = 4  # words of the question on either side of the answer
MAX_ANSWER = 3  # words
MIN_COUNT = 2  # rarer words become [UNK], so that training meets unknown words as the held-out text does


def read_chapters() -> tuple[list[str], list[str]]:
    """Return the chapters to train on and the held-out ones."""
    chapters = PROSE.read_text(encoding="utf-8").splitlines()
    held_out = chapters[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
    del chapters[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
    return chapters, held_out


def word_spans(text: str) -> list[tuple[int, int]]:
    """Character span of each word and punctuation mark, split as BERT's tokeniser does."""
    return [span for _, span in BertPreTokenizer().pre_tokenize_str(text)]


def build_vocabulary(chapters: Sequence[str]) -> list[str]:
    """Special tokens, then the lower-cased words that occur MIN_COUNT times or more, most frequent first."""
    counts = Counter(text[b:e] for text in map(str.lower, chapters) for b, e in word_spans(text))
    words = [word for word in counts if counts[word] >= MIN_COUNT]
    words.sort(key=lambda word: (-counts[word], word))
    return [*SPECIAL_TOKENS, "[MASK]", *words]


def cloze_examples(chapters: Sequence[str], count: int, rng: np.random.Generator) -> list[Example]:
    """Draw `count` questions: which 1 to 3 words stand between two quotations of a 42-word context.

    Every context is a character slice of a chapter; an answer holds at least one letter or digit.
    """
    spans = [word_spans(chapter) for chapter in chapters]
    examples: list[Example] = []
    while len(examples) < count:
        chapter = int(rng.integers(len(chapters)))
        text, first = chapters[chapter], int(rng.integers(len(spans[chapter]) - WINDOW + 1))
        words = spans[chapter][first : first + WINDOW]
        length = int(rng.integers(1, MAX_ANSWER + 1))
        start = int(rng.integers(QUOTE, WINDOW - QUOTE - length + 1))
        end = start + length
        answer = text[words[start][0] : words[end - 1][1]]
        if not any(character.isalnum() for character in answer):
            continue
        before = text[words[start - QUOTE][0] : words[start - 1][1]]
        after = text[words[end][0] : words[end + QUOTE - 1][1]]
        examples.append(
            Example(
                id=f"q{len(examples):05d}",
                question=f"What comes between {before} and {after}?",
                context=text[words[0][0] : words[-1][1]],
                answers=((answer, words[start][0] - words[0][0]),),
            )
        )
    return examples


def write_squad(examples: Sequence[Example], path: Path) -> None:
    """Write a SQuAD v1.1 JSON file with one paragraph a question."""
    paragraphs = [
        {
            "context": example.context,
            "qas": [
                {
                    "id": example.id,
                    "question": example.question,
                    "answers": [{"text": text, "answer_start": begin} for text, begin in example.answers],
                }
            ],
        }
        for example in examples
    ]
    document = {"version": "1.1", "data": [{"title": "World English Bible", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")
