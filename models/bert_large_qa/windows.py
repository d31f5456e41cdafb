"""Fixed-length windows of question and context for BERT."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from squad import Example, token_id
from tokenizers import Encoding, Tokenizer

MAX_QUERY_LENGTH = 64  # tokens; default of the published BERT SQuAD script (run_squad.py, max_query_length)
DOC_STRIDE = 128  # tokens between window starts; same script, doc_stride


@dataclass(frozen=True)
class Features:
    """Windows of all examples, stacked: n windows of seq tokens, in the order of the examples.

    token_ids, segment_ids, attention_mask: int32 [n, seq]. example_index: int64 [n].
    char_begin, char_end: int32 [n, seq], each context token's characters in its context, -1 elsewhere.
    start, end: int64 [n], token positions (end inclusive) of the first gold answer, -1 where the window
    does not hold all of it.
    """

    token_ids: NDArray[np.int32]
    segment_ids: NDArray[np.int32]
    attention_mask: NDArray[np.int32]
    example_index: NDArray[np.int64]
    char_begin: NDArray[np.int32]
    char_end: NDArray[np.int32]
    start: NDArray[np.int64]
    end: NDArray[np.int64]


def window_spans(tokens: int, room: int) -> list[tuple[int, int]]:
    """Windows (first token, token count) over a context, stepped as in the published BERT SQuAD script."""
    spans = [(0, min(tokens, room))]
    while sum(spans[-1]) < tokens:
        begin = spans[-1][0] + min(spans[-1][1], DOC_STRIDE)
        spans.append((begin, min(tokens - begin, room)))
    return spans


def make_features(examples: Sequence[Example], tokenizer: Tokenizer, max_seq_length: int) -> Features:
    """Lay each example out as [CLS] question [SEP] context window [SEP], padded to max_seq_length tokens.

    Raises ValueError when max_seq_length leaves no room for context after some question.
    """
    texts = list(dict.fromkeys(example.context for example in examples))
    context_of = dict(zip(texts, tokenizer.encode_batch(texts, add_special_tokens=False), strict=True))
    encoded = tokenizer.encode_batch([e.question for e in examples], add_special_tokens=False)
    questions = [encoding.ids[:MAX_QUERY_LENGTH] for encoding in encoded]
    longest = max((len(question) for question in questions), default=0)
    if longest + 3 >= max_seq_length:
        raise ValueError(f"max_seq_length {max_seq_length}: a question of {longest} tokens leaves no room")
    windows: list[tuple[int, int, int]] = []
    for index, (example, question) in enumerate(zip(examples, questions, strict=True)):
        spans = window_spans(len(context_of[example.context].ids), max_seq_length - len(question) - 3)
        windows += [(index, begin, count) for begin, count in spans]
    features = _empty_features(len(windows), max_seq_length, token_id(tokenizer, "[PAD]"))
    cls, sep = token_id(tokenizer, "[CLS]"), token_id(tokenizer, "[SEP]")
    for row, (index, begin, count) in enumerate(windows):
        question, context = questions[index], context_of[examples[index].context]
        first = len(question) + 2
        last = first + count
        features.token_ids[row, : last + 1] = [cls, *question, sep, *context.ids[begin : begin + count], sep]
        features.segment_ids[row, first : last + 1] = 1
        features.attention_mask[row, : last + 1] = 1
        features.example_index[row] = index
        if count:
            offsets = np.array(context.offsets[begin : begin + count], dtype=np.int32)
            features.char_begin[row, first:last], features.char_end[row, first:last] = offsets.T
        start, end = _answer_tokens(examples[index], context)
        if begin <= start <= end < begin + count:
            features.start[row], features.end[row] = start - begin + first, end - begin + first
    return features


def _answer_tokens(example: Example, context: Encoding) -> tuple[int, int]:
    """First and last context token that touch the first gold answer's characters; (-1, -1) without one."""
    if not example.answers:
        return -1, -1
    text, begin = example.answers[0]
    first, last = context.char_to_token(begin), context.char_to_token(begin + len(text) - 1)
    return (-1, -1) if first is None or last is None else (first, last)


def _empty_features(rows: int, seq: int, pad: int) -> Features:
    return Features(
        token_ids=np.full((rows, seq), pad, dtype=np.int32),
        segment_ids=np.zeros((rows, seq), dtype=np.int32),
        attention_mask=np.zeros((rows, seq), dtype=np.int32),
        example_index=np.zeros(rows, dtype=np.int64),
        char_begin=np.full((rows, seq), -1, dtype=np.int32),
        char_end=np.full((rows, seq), -1, dtype=np.int32),
        start=np.full(rows, -1, dtype=np.int64),
        end=np.full(rows, -1, dtype=np.int64),
    )
