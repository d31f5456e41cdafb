"""Log-mel spectrograms of sound, as published FastPitch computes them (common/stft.py, layers.py)."""

import numpy as np
from numpy.typing import NDArray
from speech import FRAME_STEP, MEL_BINS, SAMPLE_RATE, SILENCE, WINDOW

MEL_TOP = 8000.0  # Hz; published FastPitch, extract_mels.py


def mel_filters() -> NDArray[np.float64]:
    """Triangles [MEL_BINS, WINDOW / 2 + 1] of unit area on Slaney's mel scale, 0 to MEL_TOP Hz.

    The scale (Slaney, Auditory Toolbox, 1998) is linear to 1000 Hz, 15 mel, and logarithmic above, a factor
    of 6.4 in 27 mel.
    """
    top = 15 + 27 * np.log(MEL_TOP / 1000) / np.log(6.4)
    mels = np.linspace(0, top, MEL_BINS + 2)
    edges = np.where(mels < 15, mels * 200 / 3, 1000 * 6.4 ** ((mels - 15) / 27))
    bins = np.fft.rfftfreq(WINDOW, 1 / SAMPLE_RATE)
    low, middle, high = (edges[i : i + MEL_BINS, None] for i in range(3))
    triangles = np.minimum((bins - low) / (middle - low), (high - bins) / (high - middle))
    return np.maximum(triangles, 0) * 2 / (high - low)


def log_mels(frames: NDArray[np.float64], filters: NDArray[np.float64]) -> NDArray[np.float64]:
    """[frames, MEL_BINS] of [frames, WINDOW] samples: log of the mel magnitudes, at least SILENCE."""
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    magnitudes = np.abs(np.fft.rfft(frames * hann, axis=1)) @ filters.T
    return np.log(np.maximum(magnitudes, np.exp(SILENCE)))


def mel_of(audio: NDArray[np.float64], filters: NDArray[np.float64]) -> NDArray[np.float32]:
    """float32 [1 + samples // FRAME_STEP, MEL_BINS] of samples between -1 and 1, mirrored at both ends."""
    padded = np.pad(audio, WINDOW // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::FRAME_STEP]
    return log_mels(frames, filters).astype(np.float32)
