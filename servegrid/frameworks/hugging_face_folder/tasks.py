"""The tasks that a Hugging Face folder can be served for."""

from __future__ import annotations

from collections.abc import Sequence

TASKS: dict[str, str] = {
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "fill-mask": "AutoModelForMaskedLM",
    "image-classification": "AutoModelForImageClassification",
    "audio-classification": "AutoModelForAudioClassification",
    "automatic-speech-recognition": "AutoModelForCTC",
    "sentence-similarity": "AutoModel",
    "feature-extraction": "AutoModel",
}
"""Task, by the name that transformers' pipelines have for it -> the class of transformers that loads it.
`sentence-similarity` pools the last hidden state as the folder says."""
SENTENCE = "sentence-similarity"
ENDINGS: dict[str, str] = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "fill-mask",
    "ForImageClassification": "image-classification",
    "ForAudioClassification": "audio-classification",
    "ForCTC": "automatic-speech-recognition",
    "Model": "feature-extraction",
}
"""The end of an architecture's name -> its task."""
WITH_AUDIO = ("Data2VecAudio", "Hubert", "SEW", "UniSpeech", "Wav2Vec2", "WavLM", "Whisper")
"""The beginnings of architectures whose ForSequenceClassification classifies audio."""
ENCODERS = ("WhisperForConditionalGeneration",)
"""Architectures that generate, and whose encoder is served."""
OPTIMIZERS: dict[str, str] = {
    **dict.fromkeys(
        ("albert", "bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta"), "bert"
    ),
    "vit": "vit",
    "clip": "clip",
    "whisper": "bart",
}
"""`model_type` of a config -> the type that ONNX Runtime's transformers optimizer knows it as."""


def task_of(architectures: Sequence[str]) -> str | None:
    """The task of a config's architectures; None: it is ambiguous."""
    if len(architectures) != 1:
        return None
    (name,) = architectures
    if name in ENCODERS:
        return "feature-extraction"
    if name.endswith("ForSequenceClassification") and name.startswith(WITH_AUDIO):
        return "audio-classification"
    return next((task for ending, task in ENDINGS.items() if name.endswith(ending)), None)
