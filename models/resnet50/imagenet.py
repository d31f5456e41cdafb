"""Labelled images of an ImageNet validation folder, in any of its four published layouts."""

import csv
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import tensorflow as tf
from images import decode
from numpy.typing import NDArray

SUFFIXES = {".jpeg", ".jpg", ".png", ".gif"}
SYNSET = re.compile(r"n\d{8}")
SYNSETS = 1000
SOLUTION = "LOC_val_solution.csv"  # Kaggle, imagenet-object-localization-challenge: ImageId,PredictionString
RECORD = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}
LAYOUTS = (
    "expected TFRecord files validation-*, or images in folders named by class index (0, 1, ...), "
    f"or images in all {SYNSETS} folders named by synset (n01440764, ...), "
    f"or {SOLUTION} and the images that it names"
)


def labelled_images(folder: Path, count: int) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """`count` images, uint8 [h, w, 3], each with its class index, 0..999.

    Of TFRecords the first ones, for they are written in random order; of folders a seeded choice in random
    order. Raises ValueError when the folder has another layout or holds fewer images.
    """
    records = sorted(map(str, folder.glob("validation-*")))
    if records:
        found = _from_records(records)
    else:
        found = _from_files(_of_solution(folder) if (folder / SOLUTION).exists() else _of_folders(folder))
    given = 0
    for pair in islice(found, count):
        yield pair
        given += 1
    if given < count:
        raise ValueError(
            f"{folder}: holds {given} images, expected {count} or more; add images or lower the "
            "parameter image_count"
        )


def _from_records(files: list[str]) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """Images of the TFRecord files that TensorFlow's ImageNet script writes; their labels count from 1."""
    try:
        for number, record in enumerate(tf.data.TFRecordDataset(files)):
            example = tf.io.parse_single_example(record, RECORD)
            image = decode(example["image/encoded"].numpy(), f"{files[0]}, record {number}")
            yield image, int(example["image/class/label"]) - 1
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        raise ValueError(
            f"{files[0]} and the like: expected TFRecords with {' and '.join(RECORD)} ({error.message})"
        ) from error


def _from_files(classes: dict[Path, int]) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """Images in a seeded random order, with their classes."""
    paths = sorted(classes)
    for index in np.random.default_rng(0).permutation(len(paths)):
        path = paths[index]
        yield decode(path.read_bytes(), str(path)), classes[path]


def _of_solution(folder: Path) -> dict[Path, int]:
    """Images that lie in the folder itself, with the classes of SOLUTION; a class is its synset's rank."""
    file = folder / SOLUTION
    with file.open(newline="", encoding="utf-8") as rows:
        # PredictionString: for each object in the image its synset and a box; all of one synset.
        synset_of = {row["ImageId"]: row["PredictionString"].split()[0] for row in csv.DictReader(rows)}
    synsets = sorted(set(synset_of.values()))
    if len(synsets) != SYNSETS or not all(map(SYNSET.fullmatch, synsets)):
        raise ValueError(f"{file}: names {len(synsets)} synsets, expected {SYNSETS} like n01440764")
    class_of = {synset: index for index, synset in enumerate(synsets)}
    images = {path.stem: path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES}
    if strange := sorted(images.keys() - synset_of.keys()):
        raise ValueError(f"{images[strange[0]]}: {file} does not name it")
    return {path: class_of[synset_of[name]] for name, path in images.items()}


def _of_folders(folder: Path) -> dict[Path, int]:
    """Images of class folders, as triton/process_dataset.py of the published code names them, or synsets."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if names and all(name.isdecimal() for name in names):
        classes = {name: int(name) for name in names}
    elif len(names) == SYNSETS and all(SYNSET.fullmatch(name) for name in names):
        classes = {name: index for index, name in enumerate(names)}
    else:
        raise ValueError(f"{folder}: {LAYOUTS}; found {len(names)} folders {names[:3]}")
    return {
        path: label
        for name, label in classes.items()
        for path in (folder / name).iterdir()
        if path.suffix.lower() in SUFFIXES
    }
