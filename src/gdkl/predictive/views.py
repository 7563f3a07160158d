"""Test-time augmentation: predictions averaged over an image, its mirror image and small shifts.

As with an ensemble, the mean over views is more accurate and better calibrated than one view; it costs no training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gdkl.numerics import DataError

#: Images ``(..., height, width)``.
Images: TypeAlias = NDArray[Any]

#: A shift as part of an image's side: two pixels of 32.
_SHIFT = 1 / 16


class Views(StrEnum):
    """Which views of an image predictions are averaged over."""

    PLAIN = "plain"
    """The image as it is."""
    MIRRORED = "mirrored"
    """The image and its mirror image; for what may as well look to the other side."""
    SHIFTED = "shifted"
    """Both of them, each as it is and shifted to all four sides by a sixteenth."""


def count_views(views: Views) -> int:
    """How many images are predicted in place of one.

    Example:
        >>> [count_views(views) for views in Views]
        [1, 2, 10]
    """
    return len(_MOVES[views])


def image_views(images: Images, views: Views) -> Iterator[Images]:
    """The images as each of the views has them, those of a narrower choice first.

    Args:
        images: Whole images, ``(..., height, width)``. Where a shift uncovers pixels, the border is repeated.
        views: Which views.

    Example:
        >>> image = np.arange(4.0).reshape(1, 1, 2, 2)
        >>> [view.ravel().tolist() for view in image_views(image, Views.MIRRORED)]
        [[0.0, 1.0, 2.0, 3.0], [1.0, 0.0, 3.0, 2.0]]
    """
    if images.ndim < 3:
        raise DataError(f"views are of images, (..., channels, height, width); got shape {images.shape}.")
    height, width = images.shape[-2:]
    for mirror, down, along in _MOVES[views]:
        turned = images[..., ::-1] if mirror else images
        yield _shifted(turned, down * _pixels(height), along * _pixels(width))


def mean_over_views(
    images: Images, predict: Callable[[Images], NDArray[np.float64]], views: Sequence[Views]
) -> dict[Views, NDArray[np.float64]]:
    """Means of predictions over several choices of views, each view predicted once.

    Args:
        images: Whole images.
        predict: From images to what is averaged, such as class probabilities.
        views: Choices of views.
    """
    widest = max(views, key=count_views)
    total: NDArray[np.float64] | None = None
    found: dict[Views, NDArray[np.float64]] = {}
    for count, view in enumerate(image_views(images, widest), start=1):
        answer = predict(view)
        total = answer if total is None else total + answer
        found.update({choice: total / count for choice in views if count_views(choice) == count})
    return found


#: Whether the image is turned, and its steps down and along; each choice starts with the narrower one's.
_MOVES: dict[Views, tuple[tuple[bool, int, int], ...]] = {
    Views.PLAIN: ((False, 0, 0),),
    Views.MIRRORED: ((False, 0, 0), (True, 0, 0)),
    Views.SHIFTED: (
        (False, 0, 0),
        (True, 0, 0),
        *((turned, *step) for step in ((1, 0), (-1, 0), (0, 1), (0, -1)) for turned in (False, True)),
    ),
}


def _pixels(side: int) -> int:
    return max(1, round(_SHIFT * side))


def _shifted(images: Images, down: int, along: int) -> Images:
    height, width = images.shape[-2:]
    rows = np.clip(np.arange(height) - down, 0, height - 1)
    columns = np.clip(np.arange(width) - along, 0, width - 1)
    return np.ascontiguousarray(images[..., rows[:, None], columns[None, :]])
