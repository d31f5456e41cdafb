"""Cases of the Medical Segmentation Decathlon as it publishes them, prepared as NVIDIA's nnU-Net does."""

from pathlib import Path

import numpy as np
from nifti import read_nifti
from numpy.typing import NDArray
from volume import Volume, normalize

# The published split (triton/dataloader.py of NVIDIA's nnU-Net): scikit-learn's shuffled 5-fold of the sorted
# cases; the published checkpoint was trained on all folds but number 2.
FOLDS, FOLD, SPLIT_SEED = 5, 2, 12345
IMAGES, LABELS, SUFFIX = "imagesTr", "labelsTr", ".nii.gz"


def held_out_cases(folder: Path) -> list[str]:
    """Names of the cases that the published checkpoint has not seen, sorted.

    Raises ValueError when the folder is not an unpacked task of the Decathlon with 5 or more cases.
    """
    wanted = f"an unpacked task of the Decathlon: {FOLDS} or more {IMAGES}/<case>{SUFFIX} with {LABELS}/"
    images = folder / IMAGES
    if not images.is_dir():
        raise ValueError(f"{images}: not a folder; expected {wanted}")
    # The published archive has a file ._<case> of macOS for each case.
    found = [path.name for path in images.glob(f"*{SUFFIX}") if not path.name.startswith(".")]
    cases = sorted(name.removesuffix(SUFFIX) for name in found)
    if len(cases) < FOLDS:
        raise ValueError(f"{images}: {len(cases)} files <case>{SUFFIX}; expected {wanted}")
    order = np.arange(len(cases))
    np.random.RandomState(SPLIT_SEED).shuffle(order)
    return [cases[index] for index in sorted(np.array_split(order, FOLDS)[FOLD])]


def read_case(
    folder: Path, case: str, channels: int, classes: int, size: int
) -> tuple[Volume, NDArray[np.uint8]]:
    """The middle of a case: float32 [channels, size, size, size], and classes, uint8 [size, size, size].

    As the published preprocessing: axes z, y, x; cut to the box of the head, normalised, padded with zeros to
    `size`. The published pipeline crops the middle as well. Raises ValueError, naming the file, where a
    volume is not as the Decathlon publishes task 1; its voxels are cubes of 1 mm, so nothing is resampled.
    """
    at_image, at_label = (folder / part / f"{case}{SUFFIX}" for part in (IMAGES, LABELS))
    image, label = _read(at_image, 4), _read(at_label, 3)
    if image.shape[0] != channels or not np.isfinite(image).all() or not (image > 0).any():
        raise ValueError(f"{at_image}: shape {image.shape}, expected {channels} channels of finite numbers")
    if label.shape != image.shape[1:]:
        raise ValueError(f"{at_label}: shape {label.shape}, expected that of the image, {image.shape[1:]}")
    if not np.isin(label, np.arange(classes)).all():
        raise ValueError(f"{at_label}: expected whole numbers from 0 to {classes - 1}")
    inside = (image > 0).any(axis=0)
    axes = [np.flatnonzero(inside.any(axis=others)) for others in ((1, 2), (0, 2), (0, 1))]
    box = tuple(slice(axis[0], axis[-1] + 1) for axis in axes)
    return _middle(normalize(image[:, *box]), size), _middle(label[None, *box], size)[0].astype(np.uint8)


def _read(path: Path, axes: int) -> Volume:
    """A volume with its axes from the last to the first: [channel,] z, y, x."""
    values, spacing = read_nifti(path)
    if values.ndim != axes:
        raise ValueError(f"{path}: {values.ndim} axes, expected {axes}")
    if not np.allclose(spacing, 1, atol=1e-3):
        raise ValueError(f"{path}: voxels of {spacing} mm, expected 1 mm; task 1 needs no resampling")
    return np.ascontiguousarray(values.T)


def _middle(array: Volume, size: int) -> Volume:
    """A copy of the middle cube of [channels, depth, height, width]; zeros around a smaller one."""
    missing = [max(0, size - extent) for extent in array.shape[1:]]
    padded = np.pad(array, [(0, 0), *((space // 2, space - space // 2) for space in missing)])
    corner = [(extent - size + 1) // 2 for extent in padded.shape[1:]]
    return padded[:, *(slice(at, at + size) for at in corner)].copy()
