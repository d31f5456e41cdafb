"""Cases of the Medical Segmentation Decathlon as NVIDIA's nnU-Net preprocessing writes them."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from volume import Volume

# The published split (triton/dataloader.py of NVIDIA's nnU-Net): scikit-learn's shuffled 5-fold of the sorted
# cases; the published checkpoint was trained on all folds but number 2.
FOLDS, FOLD, SPLIT_SEED = 5, 2, 12345


def held_out_cases(folder: Path) -> list[str]:
    """Names of the cases that the published checkpoint has not seen, sorted.

    Raises ValueError when the folder is none, or does not hold `<case>_x.npy` and `<case>_y.npy` of 5 cases.
    """
    wanted = f"{FOLDS} or more cases as <case>_x.npy and <case>_y.npy (preprocess.py --task 01 --dim 3)"
    if not folder.is_dir():
        raise ValueError(f"{folder}: not a folder; expected one that holds {wanted}")
    cases = sorted(path.name.removesuffix("_x.npy") for path in folder.glob("*_x.npy"))
    if len(cases) < FOLDS:
        raise ValueError(f"{folder}: {len(cases)} files <case>_x.npy; expected {wanted}")
    order = np.arange(len(cases))
    np.random.RandomState(SPLIT_SEED).shuffle(order)
    return [cases[index] for index in sorted(np.array_split(order, FOLDS)[FOLD])]


def read_case(
    folder: Path, case: str, channels: int, classes: int, size: int
) -> tuple[Volume, NDArray[np.uint8]]:
    """The middle of a case: float32 [channels, size, size, size], and classes, uint8 [size, size, size].

    The published pipeline crops the middle as well. Only the crop is read. Raises ValueError, naming the
    file, where an array is not what the preprocessing writes.
    """
    image = _middle(folder / f"{case}_x.npy", channels, size)
    label = _middle(folder / f"{case}_y.npy", 1, size)[0]
    if image.dtype.kind != "f" or not np.isfinite(image).all():
        raise ValueError(f"{folder / case}_x.npy: expected finite floats, found {image.dtype}")
    if label.dtype.kind not in "iu" or label.min() < 0 or label.max() >= classes:
        raise ValueError(f"{folder / case}_y.npy: expected whole numbers from 0 to {classes - 1}")
    return image.astype(np.float32), label.astype(np.uint8)


def _middle(path: Path, channels: int, size: int) -> NDArray[np.generic]:
    """A copy of the middle cube of a .npy file, [channels, size, size, size]."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read as an array of numbers ({error})") from error
    if array.ndim != 4 or array.shape[0] != channels or min(array.shape[1:]) < size:
        expected = f"({channels}, D, H, W) with D, H and W of {size} or more"
        raise ValueError(f"{path}: shape {array.shape}, expected {expected}")
    corner = [(extent - size + 1) // 2 for extent in array.shape[1:]]
    middle: NDArray[np.generic] = np.array(array[:, *(slice(at, at + size) for at in corner)])
    return middle
