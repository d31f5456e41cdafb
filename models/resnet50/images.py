"""Image files as the network's input."""

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

# The shorter side of an image before the middle is cut out of it, over the side of what is cut out.
RESIZED, CROPPED = 256, 224


def decode(encoded: bytes, name: str) -> NDArray[np.uint8]:
    """A JPEG, PNG, GIF (its first picture) or BMP file as RGB, uint8 [h, w, 3]; `name` is for the error."""
    try:
        image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(f"{name}: expected a JPEG, PNG, GIF or BMP image ({error.message})") from error
    return image.numpy()


def resize_and_crop(image: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """The middle of an image of any size, uint8 [height, width, 3]; one of that size is left as it is.

    Shorter side to 256 for a crop of 224, in proportion for other crops; bilinear, no smoothing: what the
    published training code does to validation images (utils/image_processing.py). The published deployment
    (triton/process_dataset.py) cuts out the same part, resized by Pillow.
    """
    if image.shape[:2] == (height, width):
        return image
    shorter = max(height, width) * RESIZED // CROPPED
    rows, columns = (side * shorter // min(image.shape[:2]) for side in image.shape[:2])
    resized = tf.image.resize(image, (rows, columns), method="bilinear").numpy()
    top, left = (rows - height) // 2, (columns - width) // 2
    cropped = resized[top : top + height, left : left + width]
    return np.rint(cropped).astype(np.uint8)
