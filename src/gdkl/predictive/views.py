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

#: ``(..., height, width)``.
Images: TypeAlias = NDArray[Any]


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
    """The images ``(..., height, width)`` as each of the views has them, those of a narrower choice first.

    Where a shift uncovers pixels, the border is repeated.

    Example:
        >>> image = np.arange(4.0).reshape(1, 1, 2, 2)
        >>> [view.ravel().tolist() for view in image_views(image, Views.MIRRORED)]
        [[0.0, 1.0, 2.0, 3.0], [1.0, 0.0, 3.0, 2.0]]
    """
    if images.ndim < 3:
        raise DataError(f"views are of images, (..., channels, height, width); got shape {images.shape}.")
    # A shift is by a sixteenth of an image's side: two pixels of 32.
    height, width = (max(1, round(side / 16)) for side in images.shape[-2:])
    for mirror, down, along in _MOVES[views]:
        yield _shifted(images[..., ::-1] if mirror else images, down * height, along * width)


def mean_over_views(
    images: Images, predict: Callable[[Images], NDArray[np.float64]], views: Sequence[Views]
) -> dict[Views, NDArray[np.float64]]:
    """Means over several choices of views of what ``predict`` makes of images, each view predicted once."""
    widest = max(views, key=count_views)
    total: NDArray[np.float64] | None = None
    found: dict[Views, NDArray[np.float64]] = {}
    for count, view in enumerate(image_views(images, widest), start=1):
        answer = predict(view)
        total = answer if total is None else total + answer
        found.update({choice: total / count for choice in views if count_views(choice) == count})
    return found


_STEPS = ((1, 0), (-1, 0), (0, 1), (0, -1))
#: Whether the image is turned, and its steps down and along; each choice starts with the narrower one's.
_MIRRORED = ((False, 0, 0), (True, 0, 0))
_MOVES: dict[Views, tuple[tuple[bool, int, int], ...]] = {
    Views.PLAIN: _MIRRORED[:1],
    Views.MIRRORED: _MIRRORED,
    Views.SHIFTED: (*_MIRRORED, *((turn, *step) for step in _STEPS for turn in (False, True))),
}


def _shifted(images: Images, down: int, along: int) -> Images:
    height, width = images.shape[-2:]
    rows = np.clip(np.arange(height) - down, 0, height - 1)
    columns = np.clip(np.arange(width) - along, 0, width - 1)
    return np.ascontiguousarray(images[..., rows[:, None], columns[None, :]])
