"""What classifiers take: tables in 2-D or images in 4-D, and labels of any kind."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from gdkl.estimators.scaling import column_scales
from gdkl.estimators.validation import check_rows
from gdkl.numerics import DataError, DataWarning
from gdkl.predictive import FloatArray

#: The largest value of an integer pixel, which becomes one.
_PIXEL = 255

#: Float images up to here are taken to lie between 0 and 1.
_UNIT = 1.5

#: Channels of grey, coloured and transparent images.
_CHANNELS = (1, 3, 4)

_MOVE_CHANNELS = "move the channels to the second place by np.moveaxis(X, -1, 1), or X.permute(0, 3, 1, 2) of a tensor"


@dataclass(frozen=True)
class TableScaler:
    """Means and standard deviations of the training columns; constant columns are left out.

    Attributes:
        mean: Of the kept columns.
        std: Of the kept columns.
        kept: Which columns vary, ``(d,)`` booleans.
    """

    mean: FloatArray
    std: FloatArray
    kept: NDArray[np.bool_]

    @classmethod
    def fit(cls, X: FloatArray, names: Any = None) -> TableScaler:
        """Learn the scales and warn of constant columns."""
        mean, std, kept = column_scales(X, names)
        return cls(mean[kept], std[kept], kept)

    def rows(self, X: FloatArray) -> FloatArray:
        """Standardised kept columns, ``(n, kept)``."""
        return (X[:, self.kept] - self.mean) / self.std


@dataclass(frozen=True)
class ImageScaler:
    """Mean and standard deviation of each channel over all training pixels.

    Attributes:
        mean: Of each channel.
        std: Of each channel.
        integers: Whether the training images were integers, divided by 255.
        unit: Whether the training images, so divided, lie between 0 and 1.
    """

    mean: FloatArray
    std: FloatArray
    integers: bool
    unit: bool

    @classmethod
    def fit(cls, images: NDArray[np.float32], integers: bool) -> ImageScaler:
        """Learn the scales; refuse images without any contrast."""
        mean = images.mean(axis=(0, 2, 3), dtype=np.float64)
        std = images.std(axis=(0, 2, 3), dtype=np.float64)
        if not bool((std > 0).any()):
            raise DataError("every image is the same plain colour: nothing can be learned from them.")
        unit = float(images.min()) >= 0 and float(images.max()) <= _UNIT
        return cls(mean, np.where(std > 0, std, 1.0), integers, unit)

    def rows(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Standardised images as flat rows, ``(n, channels · height · width)``."""
        shape = (1, -1, 1, 1)
        scaled = (images - self.mean.reshape(shape)) / self.std.reshape(shape)
        return scaled.astype(np.float32).reshape(len(images), -1)

    def check_kind(self, images: NDArray[np.float32], integers: bool) -> None:
        """Refuse new images that are scaled in another way than those of ``fit``."""
        if integers and not self.integers and not self.unit:
            raise DataError(
                "X has integer images, and the model was fitted to float images beyond 0 … 1: convert them as then."
            )
        if self.integers and not integers and images.size and float(np.abs(images).max()) > _UNIT:
            raise DataError(
                f"X has float images up to {float(images.max()):.4g}, and the model was fitted to integer images "
                "divided by 255: pass integers, or floats from 0 to 1."
            )


def is_image_batch(X: Any) -> bool:
    """Whether X is an array or tensor of four dimensions."""
    return isinstance(X, (np.ndarray, Tensor)) and X.ndim == 4


def read_table(estimator: BaseEstimator, X: Any, *, reset: bool) -> FloatArray:
    """A table as a finite float64 matrix; tensors are welcome."""
    rows: Any = _on_cpu(X) if isinstance(X, Tensor) else X
    if not reset and (shape := getattr(estimator, "image_shape_", None)) is not None:
        raise DataError(
            f"X is {np.ndim(rows)}-D, and this {type(estimator).__name__} was fitted to images of shape {shape}: pass "
            f"them as an array of 4 dimensions, for flat rows X.reshape(-1, {', '.join(map(str, shape))})."
        )
    return check_rows(estimator, rows, reset=reset)


def read_images(estimator: Any, X: NDArray[Any] | Tensor, *, reset: bool) -> tuple[NDArray[np.float32], bool]:
    """Images N × C × H × W as float32, and whether they came as integers, which are divided by 255.

    Args:
        estimator: Whose ``n_features_in_`` and ``image_shape_`` are set (reset) or compared.
        X: Array or tensor of four dimensions.
        reset: True in ``fit``.
    """
    values = _on_cpu(X)
    if values.dtype.kind not in "iufb":
        raise DataError(f"X has images of type {values.dtype}: give integers from 0 to 255 or floats.")
    n, *shape = values.shape
    if n == 0 or 0 in shape:
        raise DataError(f"X has 0 samples: images of shape {values.shape} hold nothing to learn from or predict.")
    if reset:
        refuse_channels_last(shape)
    else:
        _compare_shape(estimator, tuple(shape))
    integers = values.dtype.kind in "iub"
    if integers:
        low, high = int(values.min()), int(values.max())
        if low < 0 or high > _PIXEL:
            raise DataError(f"X has integer images from {low} to {high}: integers must lie from 0 to 255; use floats.")
        if reset:
            warnings.warn("Integer images are divided by 255, here and in predict.", DataWarning, stacklevel=4)
    images = values.astype(np.float32)
    if integers:
        images /= _PIXEL
    elif not bool(np.isfinite(images).all()):
        first = int(np.argwhere(~np.isfinite(images))[0][0])
        raise DataError(f"X has NaN or infinite (inf) pixels (first: image {first}): drop these images or repair them.")
    if reset:
        estimator.image_shape_ = tuple(int(size) for size in shape)
        estimator.n_features_in_ = prod(shape)
        if hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
    return images, integers


def _compare_shape(estimator: Any, shape: tuple[int, ...]) -> None:
    """Refuse new images of another shape than those of ``fit``."""
    name, expected = type(estimator).__name__, getattr(estimator, "image_shape_", None)
    if expected is None:
        raise DataError(
            f"X is 4-D, and this {name} was fitted to a table of {estimator.n_features_in_} columns: pass rows in 2-D."
        )
    if shape != tuple(expected):
        remedy = "resize them" if shape[0] == expected[0] else "pass images of as many channels"
        if (shape[2], *shape[:2]) == tuple(expected):
            remedy = _MOVE_CHANNELS
        raise DataError(
            f"X has images of shape {shape} (channels, height, width), and this {name} was fitted to "
            f"{tuple(expected)}: {remedy}."
        )


def refuse_channels_last(shape: Sequence[int]) -> None:
    """Refuse images that have their channels last: read as (channels, height, width) they would be strips.

    Told by a last size that is a usual number of channels, where the first is none, and by the sides: of (16, 4, 4)
    sixteen channels of 4 × 4 are the better reading, of (28, 28, 1) a grey square.

    Raises:
        DataError: If they have; it says how to move them.

    Example:
        >>> refuse_channels_last((3, 32, 32))
        >>> try:
        ...     refuse_channels_last((32, 32, 3))
        ... except DataError as error:
        ...     print(str(error).partition(":")[0])
        images of shape (32, 32, 3) look like (height, width, channels)
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


def _on_cpu(X: NDArray[Any] | Tensor) -> NDArray[Any]:
    if not isinstance(X, Tensor):
        return X
    # NumPy has no bfloat16.
    return (X.float() if X.dtype == torch.bfloat16 else X).detach().cpu().numpy()


def check_labels(estimator: BaseEstimator, y: Any, n_rows: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The classes in sorted order, and each row's class number.

    Numbers, strings and booleans are labels; NaN, None and fractions are not.
    """
    name = type(estimator).__name__
    if y is None:
        raise DataError(f"{name} requires y to be passed, but the target y is None: call fit(X, y).")
    if isinstance(y, Tensor):
        y = y.detach().cpu().numpy()
    _refuse_missing(y)
    try:
        labels = column_or_1d(y, warn=True)
        if labels.dtype.kind == "O" and all(isinstance(label, (int, float, np.number)) for label in labels):
            # Numbers kept as Python objects are converted without ado.
            labels = np.asarray(labels.tolist())
        check_classification_targets(labels)
    except ValueError as error:
        raise DataError(f"{str(error).splitlines()[0].rstrip('.')}: give one class label a row.") from error
    if len(labels) != n_rows:
        raise DataError(f"X has {n_rows} rows and y has {len(labels)}: give one label a row.")
    try:
        classes, index = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise DataError("y has labels of several types: make them all strings or all numbers.") from error
    if len(classes) < 2:
        raise DataError(
            f"y has one class only ({classes.tolist()[0]!r}): a classifier needs rows of at least two classes."
        )
    return classes, index.astype(np.int64)


def _refuse_missing(y: Any) -> None:
    values = np.asarray(y)
    if values.dtype.kind == "c":
        raise DataError("Complex data not supported: y must hold class labels.")
    if values.dtype.kind == "f":
        missing = ~np.isfinite(values)
    elif values.dtype.kind == "O":
        # Only NaN differs from itself.
        missing = np.array([label is None or label != label for label in values.ravel()])  # noqa: PLR0124
    else:
        return
    if bool(missing.any()):
        where = int(np.flatnonzero(missing.ravel())[0])
        raise DataError(
            f"y has NaN, infinity (inf) or None for labels (first: row {where}): drop these rows or label them."
        )
