"""Scaling lives inside the model: it learns on standardised columns and answers in the user's own units."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdkl.numerics import DataError, DataWarning
from gdkl.predictive import FloatArray

#: A column whose spread is below this part of its size is constant up to rounding.
_CONSTANT = 1e-13

#: Variances of targets below this lose digits, and then vanish, once they are multiplied by a part of themselves.
_SMALLEST_VARIANCE = 1e-290


@dataclass(frozen=True)
class Scaler:
    """Means and standard deviations of the training part; constant columns are left out.

    Attributes:
        x_mean: Of the kept columns.
        x_std: Of the kept columns.
        kept: Which columns vary, ``(d,)`` booleans.
        y_mean: Of each output.
        y_std: Of each output.
        y_is_1d: Whether the targets came as a flat array.
    """

    x_mean: FloatArray
    x_std: FloatArray
    kept: NDArray[np.bool_]
    y_mean: FloatArray
    y_std: FloatArray
    y_is_1d: bool

    @classmethod
    def fit(cls, X: FloatArray, y: FloatArray, names: Any = None) -> Scaler:
        """Learn the scales, warn of constant columns and refuse constant targets.

        Args:
            X: Rows, ``(n, d)``.
            y: Targets, ``(n,)`` or ``(n, outputs)``.
            names: Column names for the warning, if there are any.
        """
        x_mean, x_std, varies = column_scales(X, names)
        targets = y.reshape(len(y), -1)
        y_mean, y_std, y_varies = _moments(targets)
        _check_target_scales(y_std, y_varies)
        return cls(x_mean[varies], x_std[varies], varies, y_mean, y_std, y.ndim == 1)

    @classmethod
    def from_moments(cls, x: ColumnMoments, y: ColumnMoments, y_is_1d: bool, names: Any = None) -> Scaler:
        """The scales of rows that were seen a part at a time; warns and refuses as `fit` does."""
        x_mean, x_std, varies = x.scales()
        _tell_of_constants(varies, names, stacklevel=4)
        y_mean, y_std, y_varies = y.scales()
        _check_target_scales(y_std, y_varies)
        return cls(x_mean[varies], x_std[varies], varies, y_mean, y_std, y_is_1d)

    def rows(self, X: FloatArray) -> FloatArray:
        """Standardised kept columns, ``(n, kept)``."""
        return (X[:, self.kept] - self.x_mean) / self.x_std

    def targets(self, y: FloatArray) -> FloatArray:
        """Standardised targets, ``(outputs, n)``."""
        return ((y.reshape(len(y), len(self.y_mean)) - self.y_mean) / self.y_std).T

    def mean(self, scaled: FloatArray) -> FloatArray:
        """Means ``(..., outputs, n)`` back in the user's units and shape ``(..., n)`` or ``(..., n, outputs)``."""
        return self._shape(np.swapaxes(scaled, -1, -2) * self.y_std + self.y_mean)

    def variance(self, scaled: FloatArray) -> FloatArray:
        """Variances ``(..., outputs, n)`` back in the user's units and shape."""
        return self._shape(np.swapaxes(scaled, -1, -2) * self.y_std**2)

    def covariance(self, scaled: FloatArray) -> FloatArray:
        """Covariances ``(outputs, n, n)`` back in the user's units: ``(n, n)`` or ``(n, n, outputs)``."""
        return self._shape(np.moveaxis(scaled, 0, -1) * self.y_std**2)

    def _shape(self, values: FloatArray) -> FloatArray:
        return values[..., 0] if self.y_is_1d else values


def column_scales(X: FloatArray, names: Any = None) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """Mean, standard deviation and whether it varies, of each column; warns of those that do not.

    Args:
        X: Rows, ``(n, d)``.
        names: Column names for the warning, if there are any.
    """
    mean, std, varies = _moments(X)
    _tell_of_constants(varies, names, stacklevel=6)
    return mean, std, varies


def _tell_of_constants(varies: NDArray[np.bool_], names: Any, stacklevel: int) -> None:
    if not bool(varies.any()):
        raise DataError("every column of X is constant: nothing can be learned from it; give columns that vary.")
    if not bool(varies.all()):
        which = [str(names[i]) if names is not None else str(i) for i in np.flatnonzero(~varies)]
        listed = ", ".join(which[:5]) + (" ..." if len(which) > 5 else "")
        plural = "s" if len(which) > 1 else ""
        warnings.warn(f"Constant column{plural} ignored: {listed}.", DataWarning, stacklevel=stacklevel)


def _check_target_scales(y_std: FloatArray, y_varies: NDArray[np.bool_]) -> None:
    if not bool(y_varies.all()):
        which = "" if len(y_std) == 1 else f" in output {int(np.argmin(y_varies))}"
        raise DataError(f"y is constant{which}: there is nothing to predict; give targets that vary.")
    with np.errstate(over="ignore", under="ignore"):
        variance = y_std**2
    if not bool((np.isfinite(variance) & (variance > _SMALLEST_VARIANCE)).all()):
        raise DataError(f"y varies by {y_std.max():.0e}, beyond what variances can hold: give it in other units.")


class ColumnMoments:
    """Means and standard deviations of columns that are seen a part of the rows at a time (Chan et al., 1979).

    Example:
        >>> moments = ColumnMoments()
        >>> for part in (np.array([[1.0], [2.0]]), np.array([[6.0]])):
        ...     moments.add(part)
        >>> mean, std, varies = moments.scales()
        >>> print(mean, std.round(4), varies, moments.count)
        [3.] [2.1602] [ True] 3
    """

    def __init__(self) -> None:
        self.count = 0
        self._mean: FloatArray = np.zeros(0)
        self._squares: FloatArray = np.zeros(0)
        self._size: FloatArray = np.zeros(0)

    def add(self, values: NDArray[Any]) -> None:
        """Take in some rows, ``(n, columns)``."""
        part = np.asarray(values, dtype=np.float64)
        n = len(part)
        if n == 0:
            return
        mean = part.mean(axis=0)
        squares = ((part - mean) ** 2).sum(axis=0)
        size = np.abs(part).max(axis=0)
        if self.count == 0:
            self.count, self._mean, self._squares, self._size = n, mean, squares, size
            return
        total = self.count + n
        shift = mean - self._mean
        self._squares = self._squares + squares + shift**2 * (self.count * n / total)
        self._mean = self._mean + shift * (n / total)
        self._size = np.maximum(self._size, size)
        self.count = total

    def scales(self) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
        """Mean, standard deviation (1 for a constant column) and whether it varies, of each column."""
        std = np.sqrt(self._squares / max(1, self.count))
        varies = (std > _CONSTANT * self._size) & (std > 0)
        return self._mean, np.where(varies, std, 1.0), varies


def _moments(values: FloatArray) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """Mean, standard deviation, and whether the column varies beyond rounding."""
    with np.errstate(divide="ignore", invalid="ignore"):
        # Means of a scaled copy: a sum of values near the largest float would overflow.
        size = np.abs(values).max(axis=0)
        unit = np.where(size > 0, size, 1.0)
        scaled = values / unit
        mean, std = scaled.mean(axis=0), scaled.std(axis=0)
        varies = (std > _CONSTANT) & (std * unit > 0)
        mean, std = mean * unit, std * unit
    return mean, np.where(varies, std, 1.0), varies
