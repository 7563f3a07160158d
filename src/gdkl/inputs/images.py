"""Images: arrays N × C × H × W, standardised by channel and handed on as flat rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gdkl.inputs.checks import FloatArray, on_cpu
from gdkl.inputs.tables import ColumnMoments
from gdkl.numerics import DataError, DataWarning

#: The largest value of an integer pixel, which becomes one.
PIXEL = 255

#: Float images up to here are taken to lie between 0 and 1.
_UNIT = 1.5

#: Channels of grey, coloured and transparent images.
_CHANNELS = (1, 3, 4)

_MOVE_CHANNELS = "move the channels to the second place by np.moveaxis(X, -1, 1), or X.permute(0, 3, 1, 2) of a tensor"


def is_image_batch(X: Any) -> bool:
    """Whether X is an array or tensor of four dimensions."""
    return isinstance(X, (np.ndarray, Tensor)) and X.ndim == 4


@dataclass(frozen=True)
class ImageInput:
    """Mean and standard deviation of each channel over all training pixels.

    Attributes:
        mean: Of each channel.
        std: Of each channel.
        image_shape: Channels, height and width.
        integers: Whether the training images were integers, divided by 255.
        unit: Whether the training images, so divided, lie between 0 and 1.
    """

    mean: FloatArray
    std: FloatArray
    image_shape: tuple[int, ...]
    integers: bool
    unit: bool

    @classmethod
    def fit(cls, X: NDArray[Any] | Tensor) -> ImageInput:
        """Learn the scales of images; refuse those without any contrast."""
        values = _check_pixels(on_cpu(X))
        shape = tuple(int(size) for size in values.shape[1:])
        refuse_channels_last(shape)
        if values.dtype.kind in "iub":
            warnings.warn("Integer images are divided by 255, here and in predict.", DataWarning, stacklevel=5)
        moments = ColumnMoments()
        for image in np.array_split(values, max(1, len(values) // 1000)):
            moments.add(channel_rows(image))
        return cls.from_moments(moments, shape, values.dtype.kind in "iub", float(values.min()), float(values.max()))

    @classmethod
    def from_moments(
        cls, moments: ColumnMoments, shape: tuple[int, ...], integers: bool, low: float, high: float
    ) -> ImageInput:
        """The scales of channels whose moments, smallest and largest value are known."""
        mean, std, varies = moments.scales()
        if not bool(varies.any()):
            raise DataError("every image is the same plain colour: nothing can be learned from them.")
        unit = PIXEL if integers else 1
        return cls(mean / unit, np.where(varies, std / unit, 1.0), shape, integers, low >= 0 and high / unit <= _UNIT)

    @property
    def columns(self) -> int:
        """Channels, which is what a network's constructor is told."""
        return self.image_shape[0]

    def rows(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """Standardised images as flat rows, ``(n, channels · height · width)``."""
        images = X.astype(np.float32)
        if X.dtype.kind in "iub":
            images /= PIXEL
        shape = (1, -1, 1, 1)
        scaled = (images - self.mean.reshape(shape)) / self.std.reshape(shape)
        return scaled.astype(np.float32).reshape(len(images), -1)

    def check(self, X: Any, name: str) -> NDArray[Any]:
        """New images as an array, if they are like those of ``fit``.

        Args:
            X: Array or tensor.
            name: Of the estimator, for the error.
        """
        if not is_image_batch(X):
            shape = self.image_shape
            raise DataError(
                f"X is {np.ndim(on_cpu(X))}-D, and this {name} was fitted to images of shape {shape}: pass them as an "
                f"array of 4 dimensions, for flat rows X.reshape(-1, {', '.join(map(str, shape))})."
            )
        values = on_cpu(X)
        self._compare_shape(tuple(values.shape[1:]), name)
        values = _check_pixels(values)
        integers = values.dtype.kind in "iub"
        if integers and not self.integers and not self.unit:
            raise DataError(
                "X has integer images, and the model was fitted to float images beyond 0 … 1: convert them as then."
            )
        if self.integers and not integers and float(np.abs(values).max()) > _UNIT:
            raise DataError(
                f"X has float images up to {float(values.max()):.4g}, and the model was fitted to integer images "
                "divided by 255: pass integers, or floats from 0 to 1."
            )
        return values

    def _compare_shape(self, shape: tuple[int, ...], name: str) -> None:
        expected = self.image_shape
        if shape == expected:
            return
        remedy = "resize them" if shape[0] == expected[0] else "pass images of as many channels"
        if (shape[2], *shape[:2]) == expected:
            remedy = _MOVE_CHANNELS
        raise DataError(
            f"X has images of shape {shape} (channels, height, width), and this {name} was fitted to {expected}: "
            f"{remedy}."
        )


def channel_rows(images: NDArray[Any]) -> NDArray[Any]:
    """Pixels as rows with one column per channel."""
    return images.swapaxes(0, 1).reshape(images.shape[1], -1).T


def _check_pixels(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind not in "iufb":
        raise DataError(f"X has images of type {values.dtype}: give integers from 0 to 255 or floats.")
    if prod(values.shape) == 0:
        raise DataError(f"X has 0 samples: images of shape {values.shape} hold nothing to learn from or predict.")
    if values.dtype.kind in "iub":
        low, high = int(values.min()), int(values.max())
        if low < 0 or high > PIXEL:
            raise DataError(f"X has integer images from {low} to {high}: integers must lie from 0 to 255; use floats.")
    elif not bool(np.isfinite(values).all()):
        first = int(np.argwhere(~np.isfinite(values))[0][0])
        raise DataError(f"X has NaN or infinite (inf) pixels (first: image {first}): drop these images or repair them.")
    return values


def refuse_channels_last(shape: Sequence[int]) -> None:
    """Refuse images that have their channels last: read as (channels, height, width) they would be strips.

    Recognised by a last size that is a usual number of channels, where the first is none, and by the sides: of
    (16, 4, 4) sixteen channels of 4 × 4 are the better reading, of (28, 28, 1) a grey square.
    """
    first, middle, last = shape
    if last not in _CHANNELS or first in _CHANNELS or _elongation(first, middle) > _elongation(middle, last):
        return
    raise DataError(
        f"images of shape {tuple(shape)} look like (height, width, channels): {_MOVE_CHANNELS}. If they do have "
        f"{first} channels, swap height and width."
    )


def _elongation(height: int, width: int) -> float:
    return max(height, width) / min(height, width)
