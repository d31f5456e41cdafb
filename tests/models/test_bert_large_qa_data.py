"""The BERT question answering plug-in: windows of long contexts, and the metric."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PLUG_IN = Path(__file__).parents[2] / "models" / "bert_large_qa"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "?", *(f"w{i}" for i in range(400))]


def write_data(folder: Path, questions: list[tuple[str, str, str, list[str]]]) -> dict[str, Any]:
    """Write (id, question, context, answers) as SQuAD, with a vocabulary; return the loader's arguments."""
    paragraphs = [
        {
            "context": context,
            "qas": [
                {
                    "id": key,
                    "question": question,
                    "answers": [{"text": a, "answer_start": context.index(a)} for a in answers],
                }
            ],
        }
        for key, question, context, answers in questions
    ]
    (folder / "dev.json").write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY))
    return {"predict_file": str(folder / "dev.json"), "vocab_file": str(folder / "vocab.txt")}


# Windows -----------------------------------------------------------------------------------------------


def test_long_context_is_split_and_the_answer_is_in_the_right_window(tmp_path: Path, plug_in: Any) -> None:
    context = " ".join(f"W{i}" for i in range(350))
    arguments = write_data(tmp_path, [("q", "Who w5?", context, ["W300 W301"])])
    loader = plug_in("dataloader").get_dataloader_fn(**arguments, max_seq_length=206, batch_size=2)
    batches = list(loader())
    assert [ids.tolist() for ids, _, _ in batches] == [[0, 1], [2]]
    x = {name: np.concatenate([batch[1][name] for batch in batches]) for name in batches[0][1]}
    y = {name: np.concatenate([batch[2][name] for batch in batches]) for name in batches[0][2]}
    assert {array.dtype for array in x.values()} == {np.dtype(np.int32)}
    # [CLS] who w5 ? [SEP], then 200 words: the windows start at words 0, 128 and 256.
    assert x["input__0"][:, 5].tolist() == [VOCABULARY.index(w) for w in ("w0", "w128", "w256")]
    assert x["input__2"].sum(axis=1).tolist() == [206, 206, 100]
    assert x["input__1"].sum(axis=1).tolist() == [201, 201, 95]
    starts, ends = (array.argmax(axis=1) for array in y.values())
    assert y["output__0"].sum(axis=1).tolist() == [0, 1, 1]
    assert (starts[1:] - 5).tolist() == [300 - 128, 300 - 256]
    assert (ends - starts)[1:].tolist() == [1, 1]


def test_question_without_room_for_context_is_refused(tmp_path: Path, plug_in: Any) -> None:
    arguments = write_data(tmp_path, [("q", "w1 " * 80, "w2", ["w2"])])
    with pytest.raises(ValueError, match="question of 64 tokens"):
        plug_in("dataloader").get_dataloader_fn(**arguments, max_seq_length=67, batch_size=1)


def test_file_of_another_structure_is_refused(tmp_path: Path, plug_in: Any) -> None:
    (tmp_path / "dev.json").write_text('{"rows": []}')
    with pytest.raises(ValueError, match=r"dev\.json.*SQuAD v1\.1"):
        plug_in("squad").read_examples(tmp_path / "dev.json")


# Metric ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prediction", "answer", "f1", "exact"),
    [
        ("The cat", "a cat!", 1.0, 1.0),  # articles and punctuation do not count
        ("  New   York. ", "new york", 1.0, 1.0),
        ("don't", "dont", 1.0, 1.0),
        ("theatre", "atre", 0.0, 0.0),  # an article is a whole word
        ("red big house", "the big house", 0.8, 0.0),  # 2 of 3 right, 2 of 2 found
        ("big big house", "big house house", 2 / 3, 0.0),  # counted with multiplicity: 2 of 3, 2 of 3
        ("dog", "cat", 0.0, 0.0),
        ("", "cat", 0.0, 0.0),
    ],
)
def test_squad_scores(plug_in: Any, prediction: str, answer: str, f1: float, exact: float) -> None:
    spans = plug_in("spans")
    assert spans.f1_score(prediction, answer) == pytest.approx(f1)
    assert spans.exact_match(prediction, answer) == exact


def logits(rows: list[dict[int, float]], seq: int) -> np.ndarray[Any, Any]:
    """float16 [rows, seq]: the named values, -5 elsewhere."""
    array = np.full((len(rows), seq), -5.0, dtype=np.float16)
    for row, values in enumerate(rows):
        for position, value in values.items():
            array[row, position] = value
    return array


def test_metric_takes_the_best_gold_answer_and_only_seen_questions(tmp_path: Path, plug_in: Any) -> None:
    context = "W1 w2, w3 w4 w5 w6"
    arguments = write_data(
        tmp_path,
        [("a", "who?", context, ["w6", "W1 w2", "w2, w3"]), ("b", "who?", context, ["w5"]),
         ("c", "who?", context, ["W1"])],
    )  # fmt: skip
    calculator = plug_in("metrics").MetricsCalculator(**arguments, max_seq_length=32)
    # Context begins at token 4: w1 w2 , w3 w4 w5 w6. A high logit in question or padding is no answer.
    calculator.update(
        np.array([0, 1]),
        {
            "output__0": logits([{4: 3, 1: 9}, {8: 3}], 32),
            "output__1": logits([{7: 3, 30: 9}, {9: 3, 6: 9}], 32),
        },
        {},
        {},
    )
    assert calculator.predictions == {"a": "W1 w2, w3", "b": "w4 w5"}
    # a: against "W1 w2" precision 2/3, recall 1; b: precision 1/2, recall 1. c was not seen.
    assert calculator.metrics == pytest.approx({"f1": (0.8 + 2 / 3) / 2, "exact_match": 0.0})


def test_metric_takes_the_best_window_and_limits_the_length(tmp_path: Path, plug_in: Any) -> None:
    context = " ".join(f"w{i}" for i in range(350))
    arguments = write_data(tmp_path, [("q", "who w5?", context, ["w300 w301"])])
    calculator = plug_in("metrics").MetricsCalculator(**arguments, max_seq_length=206)
    first = [{10: 2.0}, {177: 4.0, 20: 6.0}, {}], [{11: 2.0}, {178: 4.0, 60: 6.0}, {}]
    # One window a batch, the best in the middle. Tokens 20..60 score higher but are more than 30 tokens.
    for row in range(3):
        y_pred = {"output__0": logits([first[0][row]], 206), "output__1": logits([first[1][row]], 206)}
        calculator.update([row], y_pred, {}, {})
    assert calculator.predictions == {"q": "w300 w301"}
    assert calculator.metrics == {"f1": 1.0, "exact_match": 1.0}


def test_metric_without_data_or_of_another_shape_is_refused(tmp_path: Path, plug_in: Any) -> None:
    arguments = write_data(tmp_path, [("q", "who?", "w1", ["w1"])])
    calculator = plug_in("metrics").MetricsCalculator(**arguments, max_seq_length=32)
    with pytest.raises(ValueError, match="update"):
        _ = calculator.metrics
    wrong = np.zeros((1, 31), dtype=np.float32)
    with pytest.raises(ValueError, match=r"output__0.*shape"):
        calculator.update([0], {"output__0": wrong, "output__1": wrong}, {}, {})
