"""`python make_folder.py FOLDER STEPS KIND...`: small networks as Hugging Face folders, with samples.

FOLDER/KIND gets `model/`, as save_pretrained writes it, `samples.jsonl` or `samples/`, and `labels.npz`, the
right answers. With 0 steps a network is untrained. Nothing is downloaded.
"""

import json
import sys
import wave
from pathlib import Path

import numpy as np
import torch
import transformers as t
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = [
    a + b
    for a in ("ka", "le", "mi", "no", "pu", "ra", "so", "ti")
    for b in ("ba", "do", "fe", "gi", "lu", "ma")
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXT = {
    "vocab_size": len(WORDS) + len(SPECIAL),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
COUNT = 96


def tokenizer(largest):
    vocabulary = {token: i for i, token in enumerate(SPECIAL + WORDS)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106  # no password
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    return t.PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=largest, **names)


def sentences(rng, count=COUNT):
    return [" ".join(rng.choice(WORDS, rng.integers(3, 20))) for _ in range(count)]


def write_lines(folder, lines):
    (folder / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def train(network, steps, batch, rate=3e-3):
    """`batch(step)` gives the arguments of one call, which returns a loss."""
    network.train()
    optimizer = torch.optim.AdamW(network.parameters(), rate)
    for step in range(steps):
        loss = network(**batch(step)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1}/{steps} loss {loss.item():.3f}", flush=True)
    network.eval()


def classified(texts):
    """Label of a text: whether most of its words begin with one of the first syllables."""
    firsts = [[word[:2] in ("ka", "le", "mi", "no") for word in text.split()] for text in texts]
    return np.array([int(sum(first) * 2 > len(first)) for first in firsts])


def sequence_classification(folder, steps, rng):
    network = t.BertForSequenceClassification(
        t.BertConfig(**TEXT, id2label={0: "NO", 1: "YES"}, label2id={"NO": 0, "YES": 1})
    )
    words = tokenizer(64)

    def batch(step):
        texts = sentences(rng, 32)
        return {
            **words(texts, padding=True, return_tensors="pt"),
            "labels": torch.from_numpy(classified(texts)),
        }

    train(network, steps, batch)
    network.save_pretrained(folder / "model")
    words.save_pretrained(folder / "model")
    texts = sentences(rng)
    write_lines(folder, [{"text": text} for text in texts])
    np.savez(folder / "labels.npz", logits=classified(texts))


def token_labels(ids):
    """Label of a token: its word's first syllable, of eight; -100 for special tokens."""
    firsts = ("ka", "le", "mi", "no", "pu", "ra", "so", "ti")
    kinds = {i: firsts.index(word[:2]) for i, word in enumerate(WORDS, len(SPECIAL))}
    return np.array([kinds.get(int(i), -100) for i in ids])


def token_classification(folder, steps, rng):
    config = t.DistilBertConfig(
        vocab_size=TEXT["vocab_size"], dim=32, n_layers=2, n_heads=4, hidden_dim=64,
        max_position_embeddings=64, dropout=0.0, attention_dropout=0.0, num_labels=8,
    )  # fmt: skip
    network = t.DistilBertForTokenClassification(config)
    words = tokenizer(64)

    def batch(step):
        x = words(sentences(rng, 32), padding=True, return_tensors="pt", return_token_type_ids=False)
        return {**x, "labels": torch.from_numpy(np.stack([token_labels(ids) for ids in x["input_ids"]]))}

    train(network, steps, batch)
    network.save_pretrained(folder / "model")
    words.save_pretrained(folder / "model")
    texts = sentences(rng)
    write_lines(folder, texts)
    x = words(texts, padding=True, return_tensors="np")
    np.savez(folder / "labels.npz", logits=np.stack([token_labels(ids) for ids in x["input_ids"]]))


def questions(rng, count):
    """A word as the question, in a context that holds it once."""
    asked = []
    for _ in range(count):
        context = rng.permutation(WORDS)[: rng.integers(4, 20)]
        place = int(rng.integers(len(context)))
        asked.append((str(context[place]), " ".join(context), place + 3))  # [CLS] question [SEP]
    return asked


def question_answering(folder, steps, rng):
    config = t.RobertaConfig(
        **{**TEXT, "max_position_embeddings": 66}, pad_token_id=0, type_vocab_size=2, initializer_range=0.2
    )
    network = t.RobertaForQuestionAnswering(config)
    words = tokenizer(64)

    def batch(step):
        questions_, contexts, places = zip(*questions(rng, 64), strict=True)
        x = words(list(questions_), list(contexts), padding=True, return_tensors="pt")
        return {**x, "start_positions": torch.tensor(places), "end_positions": torch.tensor(places)}

    train(network, steps, batch)
    network.save_pretrained(folder / "model")
    words.save_pretrained(folder / "model")
    asked = questions(rng, COUNT)
    write_lines(folder, [{"question": question, "context": context} for question, context, _ in asked])
    places = np.array([place for *_, place in asked])
    np.savez(folder / "labels.npz", start_logits=places, end_logits=places)


def sentence_embedding(folder, steps, rng):
    network = t.BertModel(t.BertConfig(**TEXT))
    words = tokenizer(64)
    network.save_pretrained(folder / "model")
    words.save_pretrained(folder / "model")
    package = "sentence_transformers.models"
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    entries = [
        {"idx": i, "name": str(i), "path": p, "type": f"{package}.{k}"} for i, (p, k) in enumerate(modules)
    ]
    (folder / "model" / "modules.json").write_text(json.dumps(entries))
    (folder / "model" / "1_Pooling").mkdir()
    modes = {
        "word_embedding_dimension": 32,
        "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True,
    }
    (folder / "model" / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    texts = sentences(rng)
    write_lines(folder, texts)
    x = words(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        states = network(**x).last_hidden_state
    mask = x["attention_mask"].unsqueeze(-1)
    embedding = (states * mask).sum(1) / mask.sum(1)
    np.savez(folder / "labels.npz", sentence_embedding=torch.nn.functional.normalize(embedding).numpy())


def pictures(rng, count):
    """Noise with a bright quarter, whose number is the label."""
    labels = rng.integers(0, 4, count)
    pixels = rng.integers(0, 128, (count, 32, 32, 3), dtype=np.uint8)
    for image, label in zip(pixels, labels, strict=True):
        image[16 * (label // 2) :, 16 * (label % 2) :][:16, :16] += 100
    return pixels, labels


def image_processor(kind):
    return kind(size={"height": 32, "width": 32}, crop_size={"height": 32, "width": 32})


def image_classification(folder, steps, rng):
    network = t.ViTForImageClassification(t.ViTConfig(**VISION, num_labels=4, hidden_dropout_prob=0.0))
    processor = image_processor(t.ViTImageProcessor)

    def batch(step):
        pixels, labels = pictures(rng, 32)
        x = processor([Image.fromarray(image) for image in pixels], return_tensors="pt")
        return {**x, "labels": torch.from_numpy(labels)}

    train(network, steps, batch)
    network.save_pretrained(folder / "model")
    processor.save_pretrained(folder / "model")
    pixels, labels = pictures(rng, COUNT)
    (folder / "samples").mkdir()
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(folder / "samples" / f"{number:03}.png")
    np.savez(folder / "labels.npz", logits=labels)


def clip(folder, steps, rng):
    text = t.CLIPTextConfig(
        **{k: v for k, v in TEXT.items() if "dropout" not in k},
        bos_token_id=2,
        eos_token_id=3,
        pad_token_id=0,
    )
    config = t.CLIPConfig(
        text_config=text.to_dict(), vision_config=t.CLIPVisionConfig(**VISION).to_dict(), projection_dim=16
    )
    network = t.CLIPModel(config)
    words, processor = tokenizer(64), image_processor(t.CLIPImageProcessor)
    network.save_pretrained(folder / "model")
    words.save_pretrained(folder / "model")
    processor.save_pretrained(folder / "model")
    (folder / "images").mkdir()
    pixels, labels = pictures(rng, COUNT)
    lines = []
    for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        Image.fromarray(image).save(folder / "images" / f"{number:03}.png")
        lines.append({"text": WORDS[label] + " " + WORDS[number % 7], "image": f"images/{number:03}.png"})
    write_lines(folder, lines)


RATE = 16000


def tones(rng, count):
    """Tones of several lengths with a little noise; the label is the higher of two pitches."""
    labels = rng.integers(0, 2, count)
    waves = []
    for label in labels:
        times = np.arange(int(rng.uniform(0.3, 1.0) * RATE)) / RATE
        tone = np.sin(2 * np.pi * (300 + 900 * label) * times) + rng.normal(0, 0.05, len(times))
        waves.append((tone / 2).astype(np.float32))
    return waves, labels


def write_waves(folder, rng):
    waves, labels = tones(rng, 24)
    (folder / "samples").mkdir()
    for number, tone in enumerate(waves):
        with wave.open(str(folder / "samples" / f"{number:03}.wav"), "wb") as file:
            file.setparams((1, 2, RATE, len(tone), "NONE", ""))
            file.writeframes((tone * 2**15).astype(np.int16).tobytes())
    np.savez(folder / "labels.npz", logits=labels)


def audio_classification(folder, steps, rng):
    config = t.Wav2Vec2Config(
        vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, num_labels=2, conv_dim=(16, 16),
        conv_stride=(5, 8), conv_kernel=(10, 8), num_feat_extract_layers=2, mask_time_prob=0.0, layerdrop=0.0,
    )  # fmt: skip
    network = t.Wav2Vec2ForSequenceClassification(config)
    extractor = t.Wav2Vec2FeatureExtractor(return_attention_mask=True)

    def batch(step):
        waves, labels = tones(rng, 8)
        x = extractor(waves, sampling_rate=RATE, padding=True, return_tensors="pt")
        return {**x, "labels": torch.from_numpy(labels)}

    train(network, steps, batch)
    network.save_pretrained(folder / "model")
    extractor.save_pretrained(folder / "model")
    write_waves(folder, rng)


def whisper(folder, steps, rng):
    sizes = {
        f"{part}_{key}": value
        for part in ("encoder", "decoder")
        for key, value in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))
    }
    config = t.WhisperConfig(
        vocab_size=64, d_model=32, num_mel_bins=16, max_source_positions=50, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1, **sizes,
    )  # fmt: skip
    t.WhisperForConditionalGeneration(config).save_pretrained(folder / "model")
    t.WhisperFeatureExtractor(feature_size=16, chunk_length=1).save_pretrained(folder / "model")
    write_waves(folder, rng)


KINDS = {
    make.__name__: make
    for make in (
        sequence_classification, token_classification, question_answering, sentence_embedding,
        image_classification, clip, audio_classification, whisper,
    )
}  # fmt: skip

if __name__ == "__main__":
    target, steps, kinds = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    for kind in kinds:
        (target / kind).mkdir(parents=True)
        torch.manual_seed(0)
        KINDS[kind](target / kind, steps, np.random.default_rng(0))
