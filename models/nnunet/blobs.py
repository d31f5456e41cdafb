"""Made-up MRI volumes: a head with one tumour of three parts, each with intensities of its own."""

import numpy as np
from numpy.typing import NDArray
from volume import Volume, normalize

# Mean intensity by class (healthy, oedema, core, rim) and channel. No channel alone is enough.
INTENSITIES = np.array(
    [[1.0, 1.0, 1.0, 1.0], [1.3, 0.8, 1.6, 1.9], [0.4, 0.6, 1.8, 0.8], [0.8, 2.0, 1.2, 1.3]], dtype=np.float32
)
CLASSES, CHANNELS = INTENSITIES.shape
NOISE = 0.4  # deviation; classifying voxels one at a time, without their neighbours, then fails
GAIN = 0.3  # scanners differ: each channel is scaled by up to this share, in a slope of up to half of it


def make_volumes(count: int, size: int, seed: int) -> tuple[Volume, NDArray[np.uint8]]:
    """Draw `count` cubes: normalised, float32 [count, CHANNELS, size, size, size], and their classes."""
    rng = np.random.default_rng(seed)
    images = np.empty((count, CHANNELS, size, size, size), dtype=np.float32)
    classes = np.empty((count, size, size, size), dtype=np.uint8)
    for index in range(count):
        image, classes[index] = make_volume(size, rng)
        images[index] = normalize(image)
    return images, classes


def make_volume(size: int, rng: np.random.Generator) -> tuple[Volume, NDArray[np.uint8]]:
    """One cube: raw intensities, float32 [CHANNELS, size, size, size], zero outside the head, and classes."""
    middle = np.full(3, (size - 1) / 2)
    head = _distance(size, middle, size * rng.uniform(0.46, 0.6, 3)) <= 1
    radii = size * rng.uniform(0.24, 0.34, 3)
    centre = middle + size * rng.uniform(-0.15, 0.15, 3)
    classes = np.zeros((size, size, size), dtype=np.uint8)
    classes[_distance(size, centre, radii) <= 1] = 1
    inner = _distance(size, centre + radii * rng.uniform(-0.2, 0.2, 3), radii * rng.uniform(0.65, 0.8, 3))
    classes[inner <= 1] = 3
    classes[inner <= rng.uniform(0.35, 0.5)] = 2
    classes[~head] = 0

    image = np.moveaxis(INTENSITIES[classes], -1, 0).astype(np.float32)
    image += rng.normal(0, NOISE, image.shape).astype(np.float32)
    along = np.linspace(-GAIN / 2, GAIN / 2, size, dtype=np.float32)
    for channel in image:
        slopes = rng.uniform(-1, 1, 3).astype(np.float32)
        field = sum(slope * _along_axis(along, axis) for axis, slope in enumerate(slopes))
        channel *= (1 + field) * np.float32(rng.uniform(1 - GAIN, 1 + GAIN))
    image[:, ~head] = 0
    return image, classes


def _distance(size: int, centre: NDArray[np.float64], radii: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared distance of each voxel to the centre of an ellipsoid: 1 on its surface. [size, size, size]."""
    line = np.arange(size, dtype=np.float64)
    depth, height, width = (_along_axis(((line - centre[a]) / radii[a]) ** 2, a) for a in range(3))
    return depth + height + width


def _along_axis(line: NDArray[np.floating], axis: int) -> NDArray[np.floating]:
    """A line as a view of a cube, along one of its axes; broadcasts over the others."""
    return line.reshape([-1 if a == axis else 1 for a in range(3)])
