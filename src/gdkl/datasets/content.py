"""What a dataset is once it is loaded (a table or labelled images), and the checksum of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A table that unpacks as ``X, y, feature_names, target_name``.

    Attributes:
        X: Inputs in float64, shape ``(n, d)``; a pandas DataFrame where some are text or missing.
        y: Targets in float64, shape ``(n,)``, or ``(n, t)`` where the dataset has several; labels as they are.
        feature_names: One name per column of ``X``.
        target_name: Name of the target; a tuple of names where there are several.
        name: Name of the dataset.

    Example:
        >>> table = Table(np.zeros((3, 1)), np.arange(3.0), ("x",), "y", name="tiny")
        >>> X, y, feature_names, target_name = table
        >>> table
        <Table tiny: 3 rows, 1 feature, target y>
    """

    X: FloatArray
    y: FloatArray
    feature_names: tuple[str, ...]
    target_name: str | tuple[str, ...]
    name: str

    def __iter__(self) -> Iterator[Any]:
        # The name stays out, so that the usual line `X, y, feature_names, target_name = load(...)` works.
        return iter((self.X, self.y, self.feature_names, self.target_name))

    def __repr__(self) -> str:
        rows, columns = self.X.shape
        one = isinstance(self.target_name, str)
        target = f"target {self.target_name}" if one else f"targets {', '.join(self.target_name)}"
        return f"<Table {self.name}: {rows} rows, {columns} feature{'s' * (columns != 1)}, {target}>"


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """Images with one label each; unpacks as ``X, y, class_names, target_name``.

    Attributes:
        X: Pixels as stored, uint8, shape ``(n, channels, height, width)`` as everywhere in PyTorch.
        y: Labels, int64, shape ``(n,)``: positions in ``class_names``.
        class_names: One name per class.
        name: Name of the dataset.
        target_name: Name of what the labels say.

    Example:
        >>> images = ImageSet(np.zeros((2, 3, 8, 8), np.uint8), np.array([0, 1]), ("cat", "dog"), name="tiny")
        >>> X, y, class_names, target_name = images
        >>> images
        <ImageSet tiny: 2 images of 3 x 8 x 8, 2 classes>
    """

    X: NDArray[np.uint8]
    y: NDArray[np.int64]
    class_names: tuple[str, ...]
    name: str
    target_name: str = "class"

    def __iter__(self) -> Iterator[Any]:
        return iter((self.X, self.y, self.class_names, self.target_name))

    def __repr__(self) -> str:
        count, *shape = self.X.shape
        size = " x ".join(map(str, shape))
        return f"<ImageSet {self.name}: {count} images of {size}, {len(self.class_names)} classes>"


def content_digest(X: FloatArray, y: FloatArray) -> str:
    """SHA-256, in hexadecimal, of the numbers of a table and their shapes, whatever file they came from.

    Example:
        >>> content_digest(np.zeros((3, 2)), np.zeros(3)) == content_digest(np.zeros((2, 3)).T, -np.zeros(3))
        True
    """
    # Adding 0.0 turns -0.0 into 0.0: texts that write one number in two ways must agree.
    return _digest(*(np.asarray(np.asarray(array, dtype=np.float64) + 0.0, dtype="<f8") for array in (X, y)))


def image_digest(X: NDArray[np.uint8], y: NDArray[np.int64]) -> str:
    """SHA-256, in hexadecimal, of images ``(n, channels, height, width)``, labels ``(n,)`` and their shapes.

    Example:
        >>> pixels = np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2)
        >>> image_digest(pixels, np.array([0, 1])) == image_digest(pixels, np.array([1, 0]))
        False
    """
    return _digest(np.asarray(X, dtype=np.uint8), np.asarray(y, dtype="<i8"))


def _digest(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{'x'.join(map(str, array.shape))}:".encode("ascii"))
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
