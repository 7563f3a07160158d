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
        if not bool(y_varies.all()):
            which = "" if targets.shape[1] == 1 else f" in output {int(np.argmin(y_varies))}"
            raise DataError(f"y is constant{which}: there is nothing to predict; give targets that vary.")
        with np.errstate(over="ignore", under="ignore"):
            variance = y_std**2
        if not bool((np.isfinite(variance) & (variance > _SMALLEST_VARIANCE)).all()):
            raise DataError(f"y varies by {y_std.max():.0e}, beyond what variances can hold: give it in other units.")
        return cls(x_mean[varies], x_std[varies], varies, y_mean, y_std, y.ndim == 1)

    def rows(self, X: FloatArray) -> FloatArray:
        """Standardised kept columns, ``(n, kept)``."""
        return (X[:, self.kept] - self.x_mean) / self.x_std

    def targets(self, y: FloatArray) -> FloatArray:
        """Standardised targets, ``(outputs, n)``."""
        return ((y.reshape(len(y), -1) - self.y_mean) / self.y_std).T

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
    if not bool(varies.any()):
        raise DataError("every column of X is constant: nothing can be learned from it; give columns that vary.")
    if not bool(varies.all()):
        which = [str(names[i]) if names is not None else str(i) for i in np.flatnonzero(~varies)]
        listed = ", ".join(which[:5]) + (" ..." if len(which) > 5 else "")
        plural = "s" if len(which) > 1 else ""
        warnings.warn(f"Constant column{plural} ignored: {listed}.", DataWarning, stacklevel=5)
    return mean, std, varies


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
