"""One checksum for the content of a table, or of a set of images, whatever file it came from."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from gdkl.datasets.table import FloatArray


def content_digest(X: FloatArray, y: FloatArray) -> str:
    """SHA-256 of the numbers of a table and their shapes.

    The digest is of the arrays, not of a file: a text download, a compressed copy and a cached one have the
    same digest if and only if they hold the same numbers.

    Args:
        X: Inputs, shape ``(n, d)``.
        y: Targets, shape ``(n,)`` or ``(n, t)``.

    Returns:
        64 hexadecimal digits.

    Example:
        >>> import numpy as np
        >>> rows = np.arange(6.0).reshape(3, 2)
        >>> content_digest(rows, rows[:, 0]) == content_digest(np.asfortranarray(rows), rows[:, 0].copy())
        True
        >>> content_digest(rows, rows[:, 0]) == content_digest(rows.reshape(2, 3), rows[:, 0])
        False
    """
    digest = hashlib.sha256()
    for array in (X, y):
        # Adding 0.0 turns -0.0 into 0.0: texts that write one number in two ways must agree.
        canonical = np.ascontiguousarray(np.asarray(array, dtype=np.float64) + 0.0, dtype="<f8")
        digest.update(("x".join(str(size) for size in canonical.shape) + ":").encode("ascii"))
        digest.update(canonical.tobytes())
    return digest.hexdigest()


def image_digest(X: NDArray[np.uint8], y: NDArray[np.int64]) -> str:
    """SHA-256 of a set of images, their labels and their shapes, whatever file they came from.

    Args:
        X: Images, shape ``(n, channels, height, width)``, uint8.
        y: Labels, shape ``(n,)``.

    Returns:
        64 hexadecimal digits.

    Example:
        >>> pixels = np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2)
        >>> image_digest(pixels, np.array([0, 1])) == image_digest(pixels, np.array([1, 0]))
        False
    """
    digest = hashlib.sha256()
    for array in (np.ascontiguousarray(X, dtype=np.uint8), np.ascontiguousarray(y, dtype="<i8")):
        digest.update(("x".join(str(size) for size in array.shape) + ":").encode("ascii"))
        digest.update(array.data)
    return digest.hexdigest()
