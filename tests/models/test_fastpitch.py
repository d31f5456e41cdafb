"""The FastPitch plug-in: text, data, metric, client, and what the tiny variant learns.

The network itself is in test_fastpitch_network.py. What needs torch runs in a child process, with the
plug-in's folder as its import path.
"""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

pytestmark = pytest.mark.check

PLUG_IN = Path(__file__).parents[2] / "models" / "fastpitch"
TINY = yaml.safe_load((PLUG_IN / "model.yaml").read_text())["variants"]["tiny"]
SILENCE = np.log(1e-5)


@pytest.fixture
def tiny(prepared: Callable[[str], Path]) -> Path:
    return prepared("fastpitch")


# Text --------------------------------------------------------------------------------------------------


def test_text_becomes_published_symbols(plug_in: Any) -> None:
    text = plug_in("text")
    # By hand from the published table: padding, hyphen, 10 stops and blank, 26 capitals, then small letters.
    assert text.encode("a-z !?") == [38, 1, 63, 11, 2, 10]
    assert text.encode('Café,  "Mrs. Ray"') == text.encode("cafe, misess ray")
    assert text.clean("Dr. No. saw Mr. St. Just.") == "doctor no. saw mister saint just."
    with pytest.raises(ValueError, match="'42'"):
        text.encode("room 42")
    assert text.pad([[5, 6], []], 3).tolist() == [[5, 6, 0], [0, 0, 0]]
    with pytest.raises(ValueError, match=r"\b4 symbols.*\b3\b"):
        text.pad([[1, 2, 3, 4]], 3)


# Data --------------------------------------------------------------------------------------------------


def test_shipped_durations_fill_their_mels_and_held_out_lines_are_new(plug_in: Any) -> None:
    shipped, held_out = plug_in("speech").read_shipped(48)
    spoken = shipped.spoken
    assert [len(mel) for mel in spoken.mels] == shipped.durations[-len(spoken.mels) :].sum(axis=1).tolist()
    assert (spoken.tokens == shipped.tokens[-len(spoken.mels) :]).all()
    assert len(held_out.mels) == TINY["samples"] == 128
    assert not set(map(bytes, held_out.tokens)) & set(map(bytes, shipped.tokens))
    assert not shipped.durations[shipped.tokens == 0].any()
    voiced = shipped.pitches[shipped.pitches != 0]
    assert abs(voiced.mean()) < 0.01 and abs(voiced.std() - 1) < 0.01
    # Speech, not noise: it lies between silence and the loudest that a 16-bit recording can be.
    mels = np.concatenate(held_out.mels)
    assert mels.min() == pytest.approx(SILENCE) and 0.5 < mels.max() < 5
    with pytest.raises(ValueError, match=r"\b20\b"):
        plug_in("speech").read_shipped(20)


def test_shipped_mels_are_made_as_published(plug_in: Any) -> None:
    made = plug_in("data/make_speech")
    seconds = np.arange(8192) / 22050
    centres = np.array([2048.0, 4096.0])
    frames = made.windows(0.5 * np.sin(2 * np.pi * 1000 * seconds), centres)
    log_mels, filters = plug_in("mels").log_mels, plug_in("mels").mel_filters()
    mels = log_mels(frames, filters)
    # 8000 Hz is 15 + 27 ln(8) / ln(6.4) = 45.25 mel, 81 steps of 0.5586; 1000 Hz is 15 mel, step 26.9, near
    # the peak of triangle 27, the 26th from 0.
    assert mels.argmax(axis=1).tolist() == [26, 26]
    assert log_mels(np.zeros((1, 1024)), filters) == pytest.approx(SILENCE)
    tone = made.windows(np.sin(2 * np.pi * 150 * seconds), centres)
    assert made.pitches(tone) == pytest.approx([150, 150], rel=0.01)
    assert made.pitches(np.random.default_rng(0).normal(size=(1, 1024))).tolist() == [0]


def test_loader_lines_up_texts_and_mels(tmp_path: Path, plug_in: Any) -> None:
    speech = plug_in("speech")
    mels = [np.full((frames, 80), -frames, dtype=np.float32) for frames in (2, 5, 3)]
    tokens = np.array([[7, 0], [8, 9], [6, 0]])
    speech.write(speech.Speech(tokens=tokens, mels=mels), tmp_path / "s.npz")
    load = plug_in("dataloader").get_dataloader_fn
    loader = load(2, 2, str(tmp_path / "s.npz"))
    for _ in range(2):  # a second start gives the same
        batches = list(loader())
        assert [ids.tolist() for ids, _, _ in batches] == [[0, 1], [2]]
        x, lengths, y = (
            np.concatenate([batch[part][name] for batch in batches])
            for part, name in ((1, "INPUT__0"), (2, "OUTPUT__1"), (2, "OUTPUT__0"))
        )
        assert (x == tokens).all() and x.dtype == np.int64
        assert lengths.tolist() == [[2], [5], [3]]
        assert y.shape == (3, 80, 5) and y.dtype == np.float32
        assert y[:, 0].tolist() == [[-2, -2, 0, 0, 0], [-5] * 5, [-3, -3, -3, 0, 0]]
    with pytest.raises(ValueError, match=r"\b2 tokens.*\bseq\b.*\b3\b"):
        load(3, 2, str(tmp_path / "s.npz"))
    with pytest.raises(ValueError, match="batch_size 0"):
        load(2, 0)


def test_loader_without_files_makes_valid_texts_without_end(plug_in: Any) -> None:
    loader = plug_in("dataloader").get_dataloader_fn(seq=128, batch_size=8)
    first, again = (list(islice(loader(), 100)) for _ in range(2))
    for (_, x, y_real), (_, other, _) in zip(first, again, strict=True):
        tokens = x["INPUT__0"]
        assert tokens.shape == (8, 128) and tokens.dtype == np.int64 and y_real == {}
        assert tokens.min() >= 0 and tokens.max() < 64 and (tokens[:, :64] > 0).all()
        assert (np.diff((tokens > 0).astype(int), axis=1) <= 0).all()  # padding only behind
        assert (tokens == other["INPUT__0"]).all()
    assert [ids.tolist() for ids, _, _ in first[:2]] == [[*range(8)], [*range(8, 16)]]


# Metric ------------------------------------------------------------------------------------------------


def outputs(*lines: tuple[float, int]) -> dict[str, Any]:
    """Lines of one value everywhere, (value, frames)."""
    longest = max(frames for _, frames in lines)
    mels = np.zeros((len(lines), 80, longest), dtype=np.float32)
    for mel, (value, frames) in zip(mels, lines, strict=True):
        mel[:, :frames] = value
    return {"OUTPUT__0": mels, "OUTPUT__1": np.array([[frames] for _, frames in lines])}


def test_metric_on_known_values(plug_in: Any) -> None:
    make = plug_in("metrics").MetricsCalculator
    calculator = make()
    calculator.update([0, 1], outputs((-3, 4), (-2, 2)), None, outputs((-3.5, 4), (-2, 3)))
    # 4 frames half a unit off; 2 right ones; one of silence where -2 was spoken.
    assert calculator.metrics["mel_error"] == pytest.approx((4 * 0.5 + (-2 - SILENCE)) / 7, rel=1e-6)
    assert calculator.metrics["length_error"] == 0.5
    calculator.update([2], outputs((1, 5)), None, outputs((1, 2)))
    expected = (2 - 2 - SILENCE + 3 * (1 - SILENCE)) / 12
    assert calculator.metrics["mel_error"] == pytest.approx(expected, rel=1e-6)
    with pytest.raises(ValueError, match="update"):
        _ = make().metrics
    with pytest.raises(ValueError, match="y_real"):
        make().update([0], outputs((1, 1)), None, {})
    with pytest.raises(ValueError, match=r"OUTPUT__0\b.*\(1, 80, 1\).*\(2, 80, frames\)"):
        make().update([0, 1], outputs((1, 1)), None, outputs((1, 1), (1, 1)))


# Client ------------------------------------------------------------------------------------------------


def test_client_picture_and_sample(plug_in: Any) -> None:
    client = plug_in("client")
    mel = np.full((80, 3), SILENCE, dtype=np.float32)
    mel[0, 0], mel[79, 2] = 2.0, 9.0  # the lowest note at the start; beyond white at the end
    header, pixels = client.picture(mel).split(b"\n", 1)
    grey = np.frombuffer(pixels, dtype=np.uint8).reshape(80, 3)
    assert header == b"P5 3 80 255"
    assert grey[79, 0] == grey[0, 2] == 255 and np.count_nonzero(grey) == 2
    text = plug_in("text").encode(client.SAMPLE)
    assert len(text) <= TINY["parameters"]["seq"]


# Tiny --------------------------------------------------------------------------------------------------


def test_tiny_speaks_lines_that_it_never_heard(tiny: Path, tmp_path: Path, plug_in: Any, child: Any) -> None:
    script = """
import json, sys, numpy as np, torch
from dataloader import get_dataloader_fn
from model import get_model
folder, size, target = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
((_, x, _),) = get_dataloader_fn(size["seq"], 1000, f"{folder}/speech.npz")()
for name, more in (("trained", {"checkpoint": f"{folder}/checkpoint.pt"}), ("untrained", {})):
    module, names = get_model(**size, **more)
    with torch.no_grad():
        answer = module(torch.from_numpy(x["INPUT__0"]))
    np.savez(f"{target}/{name}.npz", **{n: v.numpy() for n, v in zip(names["outputs"], answer)})
"""
    child.output(child.start(script, tiny, json.dumps(TINY["parameters"]), tmp_path))
    ((ids, _, y_real),) = plug_in("dataloader").get_dataloader_fn(48, 1000, str(tiny / "speech.npz"))()

    def error(answer: dict[str, Any]) -> float:
        calculator = plug_in("metrics").MetricsCalculator()
        calculator.update(ids, answer, None, y_real)
        return float(calculator.metrics["mel_error"])

    trained, untrained = (dict(np.load(tmp_path / f"{name}.npz")) for name in ("trained", "untrained"))
    assert len(ids) == 128
    threshold = TINY["metric"]["threshold"]
    assert error(trained) < threshold
    assert threshold * 3 < error(untrained)
    # Blind: an answer given to another line; the best frames that do not depend on the text, at true lengths.
    assert error({name: np.roll(array, 1, axis=0) for name, array in trained.items()}) > 2 * threshold
    shipped, _ = plug_in("speech").read_shipped(48)
    heard = np.concatenate(shipped.spoken.mels)
    for frame in (heard.mean(axis=0), np.median(heard, axis=0)):
        mels = np.broadcast_to(frame[None, :, None], y_real["OUTPUT__0"].shape)
        assert error({"OUTPUT__0": mels, "OUTPUT__1": y_real["OUTPUT__1"]}) > 1.25 * threshold


def test_tiny_is_reproducible_and_follows_the_seed(tmp_path: Path, child: Any) -> None:
    script = """
import json, sys, torch
from pathlib import Path
from prepare import prepare
results = []
for seed in (0, 0, 1):
    prepare("tiny", Path(sys.argv[1]), None, {**json.loads(sys.argv[2]), "steps": 4, "seed": seed})
    state = torch.load(f"{sys.argv[1]}/checkpoint.pt")["state_dict"]
    results.append(sum(float(value.double().abs().sum()) for value in state.values()))
print(json.dumps(results))
"""
    one, two, three = child(script, tmp_path, json.dumps(TINY["parameters"]))
    assert one == two != three
