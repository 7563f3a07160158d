"""What a set of labelled images is once it is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """Images with one label each; unpacks as ``X, y, class_names, target_name``.

    Attributes:
        X: Pixels as stored, uint8, shape ``(n, channels, height, width)`` as everywhere in PyTorch.
        y: Labels, int64, shape ``(n,)``: positions in ``class_names``.
        class_names: One name a class.
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
        # As a Table does, so that the usual line `X, y, *_ = load(...)` works for both.
        return iter((self.X, self.y, self.class_names, self.target_name))

    def __repr__(self) -> str:
        count, *shape = self.X.shape
        size = " x ".join(str(side) for side in shape)
        return f"<ImageSet {self.name}: {count} images of {size}, {len(self.class_names)} classes>"
