"""SQuAD v1.1 files and the WordPiece tokeniser."""

import json
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


@dataclass(frozen=True)
class Example:
    """One question on one context; `answers` holds (text, character offset into context) pairs."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...]


def read_examples(predict_file: str | Path) -> list[Example]:
    """Read a SQuAD v1.1 JSON file; raises ValueError, naming the file, when its structure is another one."""
    try:
        document = json.loads(Path(predict_file).read_text(encoding="utf-8"))
        return [
            Example(
                id=str(question["id"]),
                question=question["question"],
                context=paragraph["context"],
                answers=tuple((a["text"], int(a["answer_start"])) for a in question["answers"]),
            )
            for article in document["data"]
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise ValueError(f"{predict_file}: not a SQuAD v1.1 file ({problem})") from error


def load_tokenizer(vocab_file: str | Path) -> Tokenizer:
    """Lower-casing WordPiece tokeniser of a vocab.txt; raises ValueError when a special token is missing."""
    tokenizer = Tokenizer(WordPiece.from_file(str(vocab_file), unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    missing = [token for token in SPECIAL_TOKENS if tokenizer.token_to_id(token) is None]
    if missing:
        raise ValueError(f"{vocab_file}: missing special tokens {', '.join(missing)}")
    return tokenizer


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """Row of a token in the vocabulary; raises ValueError when it has none."""
    found = tokenizer.token_to_id(token)
    if found is None:
        raise ValueError(f"the vocabulary has no token {token}")
    return int(found)
