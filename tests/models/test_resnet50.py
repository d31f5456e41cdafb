"""The ResNet-50 plug-in: the published checkpoint, what the tiny variant learns, metric, data and client.

Everything that needs TensorFlow runs in a child process, with the plug-in's folder as its import path.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.check

PLUG_IN = Path(__file__).parents[2] / "models" / "resnet50"


# Checkpoints -------------------------------------------------------------------------------------------

# Writes a checkpoint as TensorFlow 1 does, with the names and shapes of the published code spelt out here.
WRITE_CHECKPOINT = """
import json, sys
from pathlib import Path
import numpy as np, tensorflow as tf

def published(stem, layers, widths, classes):
    shapes = {"resnet50/output/dense/kernel": (widths[-1] * 4, classes),
              "resnet50/output/dense/bias": (classes,)}
    def convolution(scope, kernel, channels_in, channels):
        shapes[f"resnet50/{scope}/conv2d/kernel"] = (kernel, kernel, channels_in, channels)
        for name in ("beta", "gamma", "moving_mean", "moving_variance"):
            shapes[f"resnet50/{scope}/BatchNorm/{name}"] = (channels,)
    convolution("conv2d", 7, 3, stem)
    channels = stem
    for group, (count, width) in enumerate(zip(layers, widths)):
        for index in range(count):
            scope = f"btlnck_block_{group}_{index}"
            if index == 0:
                convolution(f"{scope}/shortcut/conv2d", 1, channels, width * 4)
            convolution(f"{scope}/bottleneck_1", 1, channels, width)
            convolution(f"{scope}/bottleneck_2", 3, width, width)
            convolution(f"{scope}/bottleneck_3", 1, width, width * 4)
            channels = width * 4
    return shapes

def write(folder, shapes):
    rng = np.random.default_rng(5)
    values = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    for name in values:
        if name.endswith("moving_variance"):
            values[name] = np.abs(values[name]) + 1
    training = {"global_step": np.int64(7), "resnet50/output/dense/bias/Momentum": np.float32([1, 2])}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        stored = {k: tf.compat.v1.Variable(v, use_resource=False) for k, v in {**values, **training}.items()}
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(stored, sharded=True)
        saver.save(session, f"{folder}/nvidia_rn50_tf_amp")
    return values
"""

# Argument 1 is a folder, with `sources` in it.
FULL = """
from model import get_model
from prepare import _copy_checkpoint, prepare
from network import published_names
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
folder = Path(sys.argv[1])
sources, output = folder / "sources", folder / "output"
(sources / "rn50_tf_amp_ckpt_v20.06.0").mkdir(parents=True)
values = write(sources / "rn50_tf_amp_ckpt_v20.06.0", published(64, (3, 4, 6, 3), (64, 128, 256, 512), 1001))
for label in (0, 999):
    (sources / "imagenet" / str(label)).mkdir(parents=True)
    picture = np.full((300, 400, 3), 20 + label // 5, dtype=np.uint8)
    (sources / f"imagenet/{label}/ILSVRC2012_val_{label}.JPEG").write_bytes(
        tf.io.encode_jpeg(picture, quality=100).numpy())
parameters = dict(architecture="resnet50", height=224, width=224, num_classes=1001)
files = prepare("full", output, sources, {**parameters, "image_count": 2})
network, call = get_model(**parameters, checkpoint=str(output / files["checkpoint"]))
loaded = published_names(network)
spec = {"input": tf.TensorSpec((1, 224, 224, 3), tf.float32)}
graph = convert_variables_to_constants_v2(tf.function(call).get_concrete_function(spec)).graph
options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
options["output"] = "none"
answers = call({"input": tf.constant(np.load(output / files["images_file"]).astype(np.float32))})
results = {"full": {
    "different": [k for k, v in values.items() if not np.array_equal(v, loaded[k].numpy())],
    "left over": sorted(set(loaded) - set(values)),
    "trainable": sum(int(np.prod(v.shape)) for v in network.trainable_variables),
    "all": network.count_params(),
    "flops": tf.compat.v1.profiler.profile(graph, options=options).total_float_ops,
    "answers": {k: [list(v.shape), v.dtype.name] for k, v in answers.items()},
    "labels": sorted(np.load(output / files["labels_file"]).tolist()),
    "colours": sorted(np.unique(np.load(output / files["images_file"])).tolist()),
}}
"""

# Of each change to a small checkpoint the error, or null.
CHANGED = """
kernel = "resnet50/btlnck_block_1_0/shortcut/conv2d/conv2d/kernel"
def attempt(change, shapes):
    (folder / change).mkdir()
    write(folder / change, shapes)
    if change == "damaged":
        (index,) = (folder / change).glob("*.index")
        index.write_bytes(b"no checkpoint")
    if change == "two":
        (folder / change / "other.index").write_bytes(b"")
    if change == "headless":
        for data in (folder / change).glob("*.data-*"):
            data.unlink()
    try:
        _copy_checkpoint(folder / change, folder / "resnet50.index")
        get_model("tiny", 32, 32, 10, str(folder / "resnet50.index"))
        results[change] = None
    except ValueError as error:
        results[change] = str(error)
shapes = published(16, (1, 1, 1), (16, 32, 64), 10)
attempt("none", shapes)
attempt("missing", {k: v for k, v in shapes.items() if k != kernel})
attempt("extra", {**shapes, "resnet50/output/extra": (2,)})
attempt("shape", {**shapes, kernel: (3, 3, 64, 128)})
attempt("damaged", shapes)
attempt("two", shapes)
attempt("headless", shapes)
first, second = (get_model("tiny", 32, 32, 10)[0].get_weights() for _ in range(2))
results["random"] = [all(map(np.array_equal, first, second)), float(first[0].std())]
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory, child: Any) -> Any:
    """The results of one process, because TensorFlow takes seconds to start."""
    return child(WRITE_CHECKPOINT + FULL + CHANGED, tmp_path_factory.mktemp("checkpoints"))


def test_published_checkpoint_and_images_load_completely(checkpoints: Any) -> None:
    found = checkpoints["full"]
    assert found["different"] == found["left over"] == []
    # He et al. 2016 and torchvision count 25 557 032 with 1000 classes; one class more is 2049 more. The
    # batch normalisations have 26 560 channels, each with a mean and a variance that are not trained.
    assert found["trainable"] == 25_557_032 + 2_049
    assert found["all"] == found["trainable"] + 2 * 26_560
    assert found["flops"] == pytest.approx(8.2e9, rel=0.005)
    assert found["answers"] == {"classes": [[2, 1], "int64"], "probabilities": [[2, 1001], "float32"]}
    assert found["labels"] == [0, 999]
    assert found["colours"] == [20, 219]


def test_checkpoints_that_do_not_fit_are_refused(checkpoints: Any) -> None:
    kernel = "resnet50/btlnck_block_1_0/shortcut/conv2d/conv2d/kernel"
    refused = "resnet50.index does not fit the network; "
    assert checkpoints["none"] is None
    assert checkpoints["missing"].endswith(f"{refused}missing: {kernel}")
    assert checkpoints["extra"].endswith(f"{refused}unexpected: resnet50/output/extra")
    shapes = "(3, 3, 64, 128), expected (1, 1, 64, 128)"
    assert checkpoints["shape"].endswith(f"{refused}wrong shapes: {kernel} has {shapes}")
    assert "resnet50.index: not the index of a complete TensorFlow checkpoint" in checkpoints["damaged"]
    for change in ("two", "headless"):
        assert f"{change}: expected one TensorFlow 1 checkpoint" in checkpoints[change]
        assert "found checkpoint, nvidia_rn50_tf_amp." in checkpoints[change]


def test_random_weights_are_seeded(checkpoints: Any) -> None:
    same, spread = checkpoints["random"]
    assert same
    assert spread > 0


# The tiny variant --------------------------------------------------------------------------------------

# Argument 1 is the prepared folder. Afterwards two short trainings on a part of the digits.
SCORE = """
import json, sys
import numpy as np, tensorflow as tf
from dataloader import get_dataloader_fn
from metrics import MetricsCalculator
from model import get_model
from digits import digit_images
from tiny import train
folder = sys.argv[1]
_, call = get_model("tiny", 32, 32, 10, f"{folder}/resnet50.index")
load = get_dataloader_fn(32, 32, 100, f"{folder}/images.npy", f"{folder}/labels.npy")
calculators = {name: MetricsCalculator() for name in ("right", "next", "black")}
for ids, x, y_real in load():
    found = {k: v.numpy() for k, v in call({"input": tf.constant(x["input"])}).items()}
    black = {k: v.numpy() for k, v in call({"input": tf.zeros_like(x["input"])}).items()}
    calculators["right"].update(ids, found, x, y_real)
    calculators["next"].update(ids, {k: np.roll(v, 1, axis=0) for k, v in found.items()}, x, y_real)
    calculators["black"].update(ids, black, x, y_real)
results = {name: calculator.metrics for name, calculator in calculators.items()}
images, labels = digit_images(32, 32)
first, second = (train(images[:160], labels[:160], 10, 1, seed=3).get_weights() for _ in range(2))
results["reproducible"] = all(map(np.array_equal, first, second))
print(json.dumps(results))
"""


@pytest.fixture(scope="session")
def tiny(prepared: Callable[[str], Path]) -> Path:
    return prepared("resnet50")


@pytest.fixture(scope="module")
def learned(tiny: Path, child: Any) -> Any:
    return child(SCORE, tiny)


def test_tiny_reads_digits_and_blind_guessers_do_not(learned: Any, tiny: Path) -> None:
    assert learned["right"]["top1"] >= 0.95
    assert learned["right"]["top5"] >= learned["right"]["top1"]
    assert learned["next"]["top1"] < 0.3
    assert learned["black"]["top1"] < 0.3
    labels = np.load(tiny / "labels.npy")
    assert np.bincount(labels).max() / len(labels) < 0.3  # the best that a constant answer can reach


def test_tiny_is_tested_on_digits_it_never_saw(tiny: Path, plug_in: Any) -> None:
    images, labels = plug_in("digits").digit_images(32, 32)
    held_out, answers = np.load(tiny / "images.npy"), np.load(tiny / "labels.npy")
    assert len(held_out) == len(answers) == 400
    assert np.array_equal(held_out, images[-400:])
    assert np.array_equal(answers, labels[-400:])
    trained = {image.tobytes() for image in images[:-400]}
    assert not any(image.tobytes() in trained for image in held_out)


def test_training_is_reproducible(learned: Any) -> None:
    assert learned["reproducible"]


def test_digits_are_resized_without_loss(plug_in: Any) -> None:
    images, labels = plug_in("digits").digit_images(8, 8)
    assert images.shape == (1797, 8, 8, 3)
    assert labels[:10].tolist() == list(range(10))
    assert images[0, 0, :, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]  # 0 0 5 13 9 1 0 0 of 16
    large, _ = plug_in("digits").digit_images(24, 16)
    assert large.shape == (1797, 24, 16, 3)
    assert np.array_equal(large[:, 1::3, 0, 0][:, 0], images[:, 0, 0, 0])  # odd factors keep the centres
    with pytest.raises(ValueError, match=r"height 7\b.*width 32\b.*\b8\b"):
        plug_in("digits").digit_images(7, 32)
