"""Targets of a regressor: standardised on the way in, predictions back in the user's units on the way out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gdkl.inputs.checks import FloatArray
from gdkl.inputs.tables import ColumnMoments
from gdkl.numerics import DataError

#: Variances of targets below this lose digits, and then vanish, once they are multiplied by a part of themselves.
_SMALLEST_VARIANCE = 1e-290


@dataclass(frozen=True)
class TargetScaler:
    """Means and standard deviations of the training targets.

    Attributes:
        mean: Of each output.
        std: Of each output.
        is_1d: Whether the targets came as a flat array.
    """

    mean: FloatArray
    std: FloatArray
    is_1d: bool

    @classmethod
    def fit(cls, y: FloatArray) -> TargetScaler:
        """Learn the scales of targets ``(n,)`` or ``(n, outputs)``; refuse constant ones."""
        moments = ColumnMoments()
        moments.add(y.reshape(len(y), -1))
        return cls.from_moments(moments, y.ndim == 1)

    @classmethod
    def from_moments(cls, moments: ColumnMoments, is_1d: bool) -> TargetScaler:
        """The scales of targets whose moments are known."""
        try:
            mean, std, varies = moments.scales()
        except DataError:
            raise DataError("y varies beyond what variances can hold: give it in other units.") from None
        if not bool(varies.all()):
            which = "" if len(std) == 1 else f" in output {int(np.argmin(varies))}"
            raise DataError(f"y is constant{which}: there is nothing to predict; give targets that vary.")
        if not bool((std**2 > _SMALLEST_VARIANCE).all()):
            raise DataError(f"y varies by {std.max():.0e}, beyond what variances can hold: give it in other units.")
        return cls(mean, std, is_1d)

    def scaled(self, y: FloatArray) -> FloatArray:
        """Standardised targets, ``(outputs, n)``."""
        return ((y.reshape(len(y), len(self.mean)) - self.mean) / self.std).T

    def means(self, scaled: FloatArray) -> FloatArray:
        """Means ``(..., outputs, n)`` back in the user's units and shape ``(..., n)`` or ``(..., n, outputs)``."""
        return self._shape(np.swapaxes(scaled, -1, -2) * self.std + self.mean)

    def variances(self, scaled: FloatArray) -> FloatArray:
        """Variances ``(..., outputs, n)`` back in the user's units and shape."""
        return self._shape(np.swapaxes(scaled, -1, -2) * self.std**2)

    def covariances(self, scaled: FloatArray) -> FloatArray:
        """Covariances ``(outputs, n, n)`` back in the user's units: ``(n, n)`` or ``(n, n, outputs)``."""
        return self._shape(np.moveaxis(scaled, 0, -1) * self.std**2)

    def _shape(self, values: FloatArray) -> FloatArray:
        return values[..., 0] if self.is_1d else values
