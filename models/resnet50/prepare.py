"""Checkpoint, images and labels of each variant."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FILES = {"checkpoint": "resnet50.index", "images_file": "images.npy", "labels_file": "labels.npy"}
# The folders of the published files, as `full` in model.yaml names them.
CHECKPOINT_FOLDER, IMAGES_FOLDER = "rn50_tf_amp_ckpt_v20.06.0", "imagenet"
DEFAULTS = {"epochs": 15, "seed": 0}


def prepare(variant: str, output: Path, sources: Path, parameters: dict[str, Any]) -> dict[str, str]:
    """Fill the folder `output`; returns keyword arguments of the other functions as file names in it.

    The checkpoint is a TensorFlow 1 one; images are uint8 [n, height, width, 3], labels int64 [n]. Both
    variants read height, width (pixels) and num_classes from `parameters`. `full` copies the published
    checkpoint from `sources` and reads image_count images there; `tiny` trains a small network on
    scikit-learn's digits, for epochs (15) with seed (0), and keeps the held-out digits. Raises
    ValueError on another variant, and where a source is not laid out as published.
    """
    output.mkdir(parents=True, exist_ok=True)
    if variant == "full":
        _copy_checkpoint(sources / CHECKPOINT_FOLDER, output / FILES["checkpoint"])
        images, labels = _read_images(sources / IMAGES_FOLDER, **_chosen(parameters, "image_count"))
        _check_labels(labels, int(parameters["num_classes"]), sources / IMAGES_FOLDER)
    elif variant == "tiny":
        options = {key: int(parameters.get(key, default)) for key, default in DEFAULTS.items()}
        images, labels = _make_tiny(output, **_chosen(parameters, "num_classes"), **options)
    else:
        raise ValueError(f"unknown variant {variant!r}: expected full or tiny")
    np.save(output / FILES["images_file"], images)
    np.save(output / FILES["labels_file"], labels)
    return dict(FILES)


def _chosen(parameters: dict[str, Any], name: str) -> dict[str, int]:
    return {key: int(parameters[key]) for key in ("height", "width", name)}


def _copy_checkpoint(folder: Path, index: Path) -> None:
    """Copy the one checkpoint of a folder, index and data, under the name of `index`."""
    found = sorted(folder.glob("*.index"))
    data = sorted(folder.glob(f"{found[0].stem}.data-*")) if len(found) == 1 else []
    if not data:
        raise ValueError(
            f"{folder}: expected one TensorFlow 1 checkpoint (NAME.index and NAME.data-*), as the published "
            f"archive unpacks; found {', '.join(sorted(path.name for path in folder.glob('*'))) or 'nothing'}"
        )
    shutil.copyfile(found[0], index)
    for path in data:
        shutil.copyfile(path, index.with_suffix(path.suffix))


def _read_images(
    folder: Path, height: int, width: int, image_count: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    from imagenet import labelled_images
    from images import resize_and_crop

    if not folder.is_dir():
        raise ValueError(f"{folder}: expected a folder of ImageNet's validation images")
    images = np.empty((image_count, height, width, 3), dtype=np.uint8)
    labels = np.empty(image_count, dtype=np.int64)
    for row, (image, label) in enumerate(labelled_images(folder, image_count)):
        images[row], labels[row] = resize_and_crop(image, height, width), label
    return images, labels


def _check_labels(labels: NDArray[np.int64], num_classes: int, folder: Path) -> None:
    wrong = labels[(labels < 0) | (labels >= num_classes)]
    if len(wrong):
        raise ValueError(f"{folder}: class index {wrong[0]}, expected 0..{num_classes - 1}")


def _make_tiny(
    output: Path, height: int, width: int, num_classes: int, epochs: int, seed: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    # Imported here: these need scikit-learn, or switch TensorFlow to another mode.
    from checkpoint import save
    from digits import HELD_OUT, digit_images
    from tiny import train

    images, labels = digit_images(height, width)
    network = train(images[:-HELD_OUT], labels[:-HELD_OUT], num_classes, epochs, seed)
    save(network, output / FILES["checkpoint"])
    return images[-HELD_OUT:], labels[-HELD_OUT:]
