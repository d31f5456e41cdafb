"""The ResNet-50 plug-in around its network: ImageNet's layouts, data loader, metric and client.

What needs TensorFlow runs in a child process, with the plug-in's folder as its import path.
"""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PLUG_IN = Path(__file__).parents[2] / "models" / "resnet50"


# ImageNet ----------------------------------------------------------------------------------------------

# Argument 1 is a folder. Lossless pictures whose red is their label / 5; of each layout what is read of it.
LAYOUTS = """
import json, sys
from pathlib import Path
import numpy as np, tensorflow as tf
from client import read_picture
from prepare import _copy_checkpoint, _read_images
from images import resize_and_crop
folder = Path(sys.argv[1])

def picture(label):
    return tf.io.encode_png(np.full((30, 40, 3), [label // 5, 0, 0], dtype=np.uint8)).numpy()

def folders(layout, names, labels):
    for label, name in enumerate(names):
        (folder / layout / name).mkdir(parents=True)
        if label in labels:
            (folder / layout / name / "picture.PNG").write_bytes(picture(labels[label]))

def records(layout, key):
    (folder / layout).mkdir()
    for part in (0, 1):
        with tf.io.TFRecordWriter(f"{folder}/{layout}/validation-0000{part}-of-00002") as file:
            for label in (part * 500, part * 500 + 5):
                feature = {"image/encoded": tf.train.Feature(
                               bytes_list=tf.train.BytesList(value=[picture(label)])),
                           key: tf.train.Feature(int64_list=tf.train.Int64List(value=[label + 1]))}
                features = tf.train.Features(feature=feature)
                file.write(tf.train.Example(features=features).SerializeToString())

folders("indices", ["0", "500", "999"], {0: 0, 1: 500, 2: 999})
folders("synsets", [f"n{number:08}" for number in range(1, 1001)], {0: 0, 500: 500, 999: 999})
folders("others", ["cats", "dogs"], {0: 0})
folders("few", ["1", "2"], {0: 5})
def solution(layout, synsets, shown):
    # Kaggle's flat folder: the csv names an image of each synset, in reverse order; only some lie there.
    (folder / layout).mkdir()
    rows = [f"ILSVRC2012_val_{i:08},n{2 * i:08} 1 2 3 4 n{2 * i:08} 5 6 7 8 " for i in range(synsets, 0, -1)]
    (folder / layout / "LOC_val_solution.csv").write_text(chr(10).join(["ImageId,PredictionString", *rows]))
    for number in shown:  # synset n0000002N has rank N - 1
        (folder / layout / f"ILSVRC2012_val_{number:08}.JPEG").write_bytes(picture(number - 1))

solution("solution", 1000, (1, 501, 1000))
solution("short", 999, (1, 501, 999))
solution("strange", 1000, (1, 501, 1001))
records("records", "image/class/label")
records("unlabelled", "label")
folders("pictures", ["0"], {})
(folder / "pictures" / "0" / "broken.JPEG").write_bytes(b"no picture")
results = {}
for layout in ("indices", "synsets", "solution", "records", "short", "strange",
               "others", "few", "unlabelled", "pictures", "nowhere"):
    try:
        images, labels = _read_images(folder / layout, 16, 16, 3)
        results[layout] = [labels.tolist(), images[:, 8, 8, 0].tolist(), images.shape]
    except ValueError as error:
        results[layout] = str(error)
    except Exception as error:
        results[layout] = repr(error)

# A picture whose shorter side is 256 is only cropped; one twice as large is averaged or sampled down.
ramp = np.stack(np.meshgrid(np.arange(300) % 256, np.arange(256), [7]), axis=-1)[:, :, 0].astype(np.uint8)
cut = resize_and_crop(ramp, 224, 224)
results["cropped"] = bool(np.array_equal(cut, ramp[16:240, 38:262]))
results["kept"] = bool(np.array_equal(resize_and_crop(cut, 224, 224), cut))
double = np.repeat(np.repeat(ramp, 2, axis=0), 2, axis=1)
apart = resize_and_crop(double, 224, 224)[..., 0].astype(int) - cut[..., 0]
results["halved"] = int(np.abs(apart[:, :200]).max())  # further right red starts at 0 again
results["tall"] = resize_and_crop(np.zeros((999, 333, 3), np.uint8), 224, 224).shape

(folder / "picture.png").write_bytes(picture(500))
read = read_picture(str(folder / "picture.png"), 32, 32)
results["client"] = [read.shape, np.unique(read[..., 0]).tolist()]
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def layouts(child: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return child(LAYOUTS, tmp_path_factory.mktemp("imagenet"))


@pytest.mark.parametrize("layout", ["indices", "synsets", "solution", "records"])
def test_labels_belong_to_their_images(layouts: Any, layout: str) -> None:
    labels, reds, shape = layouts[layout]
    assert sorted(labels) == ([0, 5, 500] if layout == "records" else [0, 500, 999])
    assert reds == [label // 5 for label in labels]
    assert shape == [3, 16, 16, 3]


@pytest.mark.parametrize(
    ("layout", "problem"),
    [
        ("others", "expected TFRecord files validation-*, or images in folders named by class index"),
        ("few", "holds 1 images, expected 3 or more; add images or lower the parameter image_count"),
        ("unlabelled", "expected TFRecords with image/encoded and image/class/label"),
        ("pictures", "broken.JPEG: expected a JPEG, PNG, GIF or BMP image"),
        ("short", "LOC_val_solution.csv: names 999 synsets"),
        ("strange", "ILSVRC2012_val_00001001.JPEG: "),
        ("nowhere", "nowhere: expected a folder of ImageNet's validation images"),
    ],
)
def test_another_layout_is_refused(layouts: Any, layout: str, problem: str) -> None:
    assert problem in layouts[layout]


def test_images_are_resized_and_cropped_as_published(layouts: Any) -> None:
    assert layouts["cropped"]
    assert layouts["kept"]
    assert layouts["halved"] <= 1
    assert layouts["tall"] == [224, 224, 3]


# Data loader -------------------------------------------------------------------------------------------


def write_data(folder: Path, count: int) -> dict[str, Any]:
    """Images all of whose values are their label; the loader's arguments."""
    labels = np.arange(count, dtype=np.int64)[::-1].copy()
    np.save(
        folder / "images.npy", np.broadcast_to(labels[:, None, None, None], (count, 4, 6, 3)).astype("u1")
    )
    np.save(folder / "labels.npy", labels)
    files = {"images_file": str(folder / "images.npy"), "labels_file": str(folder / "labels.npy")}
    return {"height": 4, "width": 6, **files}


def test_loader_keeps_order_and_labels(tmp_path: Path, plug_in: Any) -> None:
    loader = plug_in("dataloader").get_dataloader_fn(**write_data(tmp_path, 7), batch_size=3)
    batches = list(loader())
    assert [ids.tolist() for ids, _, _ in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    for _, x, y_real in batches:
        assert x["input"].dtype == np.float32
        assert x["input"].shape[1:] == (4, 6, 3)
        assert y_real["classes"].dtype == np.int64
        assert (x["input"] == y_real["classes"][:, :, None, None]).all()
    assert np.concatenate([y["classes"] for _, _, y in batches])[:, 0].tolist() == [6, 5, 4, 3, 2, 1, 0]
    assert len(list(loader())) == 3  # every call starts anew


def test_loader_refuses_wrong_shapes(tmp_path: Path, plug_in: Any) -> None:
    make, data = plug_in("dataloader").get_dataloader_fn, write_data(tmp_path, 7)
    with pytest.raises(ValueError, match="batch_size 0"):
        make(**data, batch_size=0)
    with pytest.raises(ValueError, match=r"images\.npy.*\(7, 4, 6, 3\).*\(7, 5, 6, 3\)"):
        make(**{**data, "height": 5}, batch_size=1)


def test_loader_without_files_gives_seeded_random_images(plug_in: Any) -> None:
    loader = plug_in("dataloader").get_dataloader_fn(height=224, width=32, batch_size=4)
    batches, again = (list(islice(loader(), 3)) for _ in range(2))
    assert [ids.tolist() for ids, _, _ in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    for (_, x, y_real), (_, same, _) in zip(batches, again, strict=True):
        assert y_real == {}
        assert x["input"].shape == (4, 224, 32, 3)
        assert x["input"].dtype == np.float32
        assert 0 <= x["input"].min() < 20 < 235 < x["input"].max() <= 255
        assert np.array_equal(x["input"], same["input"])
    images = np.concatenate([x["input"] for _, x, _ in batches])
    assert len(np.unique(images.reshape(12, -1), axis=0)) == 12


# Metric ------------------------------------------------------------------------------------------------


def test_accuracy_of_known_answers(plug_in: Any) -> None:
    calculator = plug_in("metrics").MetricsCalculator()
    probabilities = np.array([[0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.05]] * 4, dtype=np.float16)
    # Right; second; the lower of two equal fifths is among five, the last is not.
    for rows, labels in ((slice(0, 3), [0, 2, 4]), (slice(3, 4), [5])):
        y_pred = {"classes": np.zeros((len(labels), 1)), "probabilities": probabilities[rows]}
        calculator.update(np.arange(4)[rows], y_pred, {}, {"classes": np.array(labels)[:, None]})
    assert calculator.metrics == {"top1": 0.25, "top5": 0.75}


def test_metric_without_data_or_of_another_shape_is_refused(plug_in: Any) -> None:
    calculator = plug_in("metrics").MetricsCalculator()
    with pytest.raises(ValueError, match="update"):
        _ = calculator.metrics
    flat = {"classes": np.zeros(2), "probabilities": np.zeros((2, 10))}
    with pytest.raises(ValueError, match=r"\(2,\).*\(2, 10\).*\(2, 1\)"):
        calculator.update(np.arange(2), flat, {}, {"classes": np.zeros((2, 1))})


# Client ------------------------------------------------------------------------------------------------


def test_client_reads_a_picture_or_takes_its_sample(layouts: Any, plug_in: Any) -> None:
    assert layouts["client"] == [[1, 32, 32, 3], [100]]
    sample = plug_in("client").read_picture(None, 32, 32)
    images, _ = plug_in("digits").digit_images(32, 32)
    assert np.array_equal(sample, images[1400:1401])
    assert len(images) - 400 <= 1400  # held out


def test_client_names_the_likeliest_classes(plug_in: Any) -> None:
    probabilities = np.array([0.05, 0.5, 0.0, 0.25, 0.2, 0.0, 0.0], dtype=np.float16)
    lines = plug_in("client").describe(probabilities, ["zero", "one"]).splitlines()
    assert [line.strip() for line in lines] == [
        "50.00%  one",
        "25.00%  class 3",
        "20.00%  class 4",
        "5.00%  zero",
        "0.00%  class 2",
    ]
