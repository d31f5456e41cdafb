"""Volumes of NIfTI-1 files (nifti.nimh.nih.gov, nifti1.h), in NumPy alone."""

import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEADER = 348  # bytes, and the value of its first field
KINDS = {2: "u1", 4: "i2", 8: "i4", 16: "f4", 64: "f8", 256: "i1", 512: "u2", 768: "u4"}
"""datatype -> NumPy's type, without the byte order."""


def read_nifti(path: Path) -> tuple[NDArray[np.float32], tuple[float, ...]]:
    """Values of a .nii.gz file, float32, axes in the file's order (x, y, z, channel), and a voxel's size.

    Raises ValueError naming the file where it is no single-file NIfTI-1 volume of real numbers.
    """
    try:
        data = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read as a gzipped NIfTI file ({error})") from error
    order = next((o for o in "<>" if data[:4] == np.array(HEADER, f"{o}i4").tobytes()), None)
    if order is None or data[344:348] != b"n+1\0":
        raise ValueError(f"{path}: not a NIfTI-1 file in one piece (its magic is not 'n+1')")

    def field(kind: str, offset: int, count: int = 1) -> NDArray[Any]:
        return np.frombuffer(data, f"{order}{kind}", count, offset)

    axes, kind = int(field("i2", 40)[0]), KINDS.get(int(field("i2", 70)[0]))
    if kind is None or not 3 <= axes <= 7:
        raise ValueError(f"{path}: expected 3 or more axes of real numbers, found {axes} axes")
    shape = field("i2", 42, axes).tolist()
    start, (slope, intercept) = int(field("f4", 108)[0]), field("f4", 112, 2).tolist()
    try:
        values = field(kind, start, int(np.prod(shape))).reshape(shape, order="F").astype(np.float32)
    except ValueError as error:
        raise ValueError(f"{path}: shorter than its header says, {shape} ({error})") from error
    if slope not in (0, 1) or (slope and intercept):  # a slope of 0: values are as stored
        values = values * np.float32(slope) + np.float32(intercept)
    return values, tuple(field("f4", 80, 3).tolist())
