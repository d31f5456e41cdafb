"""Speaks the sentences of the tiny variant with espeak-ng and writes speech.npz; see README.md.

Run once, where libespeak-ng 1.51 is installed: python models/fastpitch/data/make_speech.py
"""

import ctypes
import re
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from mels import log_mels, mel_filters  # noqa: E402
from speech import FRAME_STEP, SAMPLE_RATE, SILENCE, STEP, WINDOW  # noqa: E402
from text import encode  # noqa: E402

LINES, WITH_MELS, LONGEST, SEED = 1200, 300, 48, 0
VOICE, WORDS_A_MINUTE = b"en-us", 260
PITCH_RANGE = (60.0, 250.0)  # Hz; espeak-ng's male voice
VOICED = 0.6  # least autocorrelation, relative to lag 0, of a voiced frame

WHO = "king, queen, farmer, sailor, doctor, teacher, baker, girl, boy, woman, man, child, hunter, painter"
WHAT = (
    "bird, horse, dog, cat, boat, letter, book, ring, lamp, apple, stone, key, coat, map, drum, bell, flower"
)
HOW = (
    "old, young, red, green, small, large, happy, quiet, silver, golden, broken, heavy, empty, little, brown"
)
DID = (
    "saw, found, took, lost, sold, made, gave, held, left, wanted, followed, carried, opened, painted, washed"
)
WHERE = (
    "river, lake, house, garden, bridge, market, forest, tower, road, village, mountain, window, table, door"
)
NEAR = "near, behind, under, beside, above, before, after"
WHEN = "today, again, alone, slowly, at night, at noon, in winter, in summer"

INITIALIZE_PHONEME_EVENTS, SYNCHRONOUS, RATE, UTF_8 = 1, 2, 1, 1  # speak_lib.h of espeak-ng 1.51
LAST_EVENT, WORD, PHONEME = 0, 1, 7  # espeak_EVENT_TYPE


class Event(ctypes.Structure):
    """espeak_EVENT; `sample` counts from the start of the text, `text_position` counts from 1."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("unique", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    ]


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(Event))
Found = tuple[int, int, int, int, str]  # type, first character (from 0), characters, sample, phoneme


class Voice:
    """espeak-ng in this process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libespeak-ng.so.1")
        rate = self._library.espeak_Initialize(SYNCHRONOUS, 0, None, INITIALIZE_PHONEME_EVENTS)
        if rate != SAMPLE_RATE:
            raise SystemExit(f"espeak-ng speaks at {rate} Hz, expected {SAMPLE_RATE}")
        self._library.espeak_SetVoiceByName(VOICE)
        self._library.espeak_SetParameter(RATE, WORDS_A_MINUTE, 0)
        self._audio: list[NDArray[np.int16]] = []
        self._events: list[Found] = []
        self._callback = CALLBACK(self._take)
        self._library.espeak_SetSynthCallback(self._callback)

    def speak(self, text: str) -> tuple[NDArray[np.float64], list[Found]]:
        """Samples between -1 and 1, and the events in order."""
        self._audio, self._events = [], []
        data = text.encode()
        self._library.espeak_Synth(data, len(data) + 1, 0, 1, 0, UTF_8, None, None)
        return np.concatenate(self._audio) / 32768.0, self._events

    def _take(self, samples, count, events) -> int:  # type: ignore[no-untyped-def]
        if samples and count > 0:
            self._audio.append(np.ctypeslib.as_array(samples, (count,)).copy())
        for event in events:
            if event.type == LAST_EVENT:
                break
            place = event.text_position - 1
            self._events.append((event.type, place, event.length, event.sample, event.id.decode("latin-1")))
        return 0


def sentences(rng: np.random.Generator) -> list[str]:
    """LINES different sentences of at most LONGEST characters."""

    def one_of(phrases: str) -> str:
        choices = phrases.split(", ")
        return choices[int(rng.integers(len(choices)))]

    made: dict[str, None] = {}
    while len(made) < LINES:
        words = ["the", one_of(HOW), one_of(WHO), one_of(DID), "the", one_of(WHAT)]
        if rng.random() < 0.5:
            del words[1]
        if rng.random() < 0.4:
            words.insert(-1, one_of(HOW))
        if rng.random() < 0.4:
            words += [one_of(NEAR), "the", one_of(WHERE)]
        text = " ".join(words)
        if rng.random() < 0.3:
            text = f"{text}, {one_of(WHEN)}" if rng.random() < 0.5 else f"{one_of(WHEN)}, {text}"
        if len(text) < LONGEST:
            made[f"{text}."] = None
    return list(made)


def boundaries(text: str, events: list[Found]) -> NDArray[np.float64]:
    """Sample at which each character begins, and the last one's end, [len(text) + 1].

    A word's letters share its phonemes evenly in order; a comma gets its pause; blanks and the full
    stop get no time.
    """
    begin = np.zeros(len(text) + 1)
    words = [event for event in events if event[0] == WORD and event[2] > 0]  # no characters: a pause
    if [(event[1], event[1] + event[2]) for event in words] != [
        match.span() for match in re.finditer(r"\w+", text)
    ]:
        raise SystemExit(f"{text!r}: espeak-ng joined or left out a word")
    pauses = [event for event in events if event[0] == PHONEME and event[4].startswith("_")]
    end = max(event[3] for event in pauses if event[4] == "_:")
    for index, (_, first, length, start, _) in enumerate(words):
        after = words[index + 1][3] if index + 1 < len(words) else end
        stop = min([after, *(event[3] for event in pauses if start < event[3] < after)])
        inside = sorted({event[3] for event in events if event[0] == PHONEME and start <= event[3] < stop})
        phonemes = np.array([start, *inside[1:], stop], dtype=np.float64)
        places = np.linspace(0, len(phonemes) - 1, length + 1)
        begin[first : first + length + 1] = np.interp(places, np.arange(len(phonemes)), phonemes)
        if first + length < len(text):
            begin[first + length + 1 :] = after  # a comma lasts from stop to after, a blank not at all
    return begin


def windows(audio: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.float64]:
    """[frames, WINDOW] samples around each centre; zeros beyond the ends."""
    padded = np.pad(audio, WINDOW)
    first = np.round(centres).astype(int) + WINDOW // 2
    return padded[first[:, None] + np.arange(WINDOW)]


def pitches(frames: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pitch of each frame in Hz by its autocorrelation, 0 where unvoiced."""
    spectrum = np.abs(np.fft.rfft(frames, 2 * WINDOW, axis=1)) ** 2
    correlation = np.fft.irfft(spectrum, axis=1)
    least, most = (int(SAMPLE_RATE / hertz) for hertz in reversed(PITCH_RANGE))
    lag = correlation[:, least:most].argmax(axis=1) + least
    peak = correlation[np.arange(len(lag)), lag] * WINDOW / (WINDOW - lag)
    voiced = peak > VOICED * np.maximum(correlation[:, 0], 1e-3)
    return np.where(voiced, SAMPLE_RATE / lag, 0.0)


def main() -> None:
    voice, filters = Voice(), mel_filters()
    lines = sentences(np.random.default_rng(SEED))
    mels, durations, pitch = [], [], []
    for text in lines:
        audio, events = voice.speak(text)
        begin = boundaries(text, events)
        frames = np.round(np.diff(begin) / FRAME_STEP).astype(int)
        steps = np.diff(begin) / np.maximum(frames, 1)
        centres = [b + s * (np.arange(n) + 0.5) for b, s, n in zip(begin, steps, frames, strict=False)]
        sound = windows(audio, np.concatenate(centres))
        mels.append(np.round((log_mels(sound, filters) - SILENCE) / STEP))
        parts = np.split(pitches(sound), np.cumsum(frames)[:-1])
        pitch.append([part[part > 0].mean() if (part > 0).any() else 0.0 for part in parts])
        durations.append(frames)
        assert len(encode(text)) == len(frames) and (np.diff(begin) >= 0).all(), text
    np.savez_compressed(
        HERE / "speech.npz",
        lines=np.array(lines),
        with_mels=WITH_MELS,
        mels=np.concatenate(mels[-WITH_MELS:]).astype(np.uint8),
        durations=np.concatenate(durations).astype(np.uint8),
        pitches=np.concatenate(pitch).astype(np.uint8),
    )


if __name__ == "__main__":
    main()
