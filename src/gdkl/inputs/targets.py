"""Targets of a regressor: warped and standardised on the way in, predictions back in warped units on the way out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gdkl.inputs.checks import FloatArray
from gdkl.inputs.tables import ColumnMoments
from gdkl.inputs.warp import Warp, joint_warp
from gdkl.numerics import DataError

#: Variances of targets below this lose digits, and then vanish, once they are multiplied by a part of themselves.
_SMALLEST_VARIANCE = 1e-290


@dataclass(frozen=True)
class TargetScaler:
    """Means and standard deviations of the training targets, and their warps.

    What comes back (`means`, `variances`) is in warped units, which are the user's where there is no
    warp: `gdkl.predictive.Predictive` takes it from there.

    Attributes:
        mean: Of each warped output.
        std: Of each warped output.
        is_1d: Whether the targets came as a flat array.
        warps: One per output, or none at all.
        varies: Whether each training target varied; one that did not has a standard deviation of 1, as in
            scikit-learn's `GaussianProcessRegressor`. None for all.
    """

    mean: FloatArray
    std: FloatArray
    is_1d: bool
    warps: tuple[Warp | None, ...] = ()
    varies: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "warps", tuple(self.warps) or (None,) * len(self.mean))

    @classmethod
    def fit(cls, y: FloatArray, warps: Sequence[Warp | None] = ()) -> TargetScaler:
        """Learn the scales of targets ``(n,)`` or ``(n, outputs)``."""
        moments = ColumnMoments()
        moments.add(_warped(y.reshape(len(y), -1), warps))
        return cls.from_moments(moments, y.ndim == 1, warps)

    @classmethod
    def from_moments(cls, moments: ColumnMoments, is_1d: bool, warps: Sequence[Warp | None] = ()) -> TargetScaler:
        """The scales of targets whose moments, after their warps, are known."""
        try:
            mean, std, varies = moments.scales()
        except DataError:
            raise DataError("y varies beyond what variances can hold: give it in other units.") from None
        if not bool((std**2 > _SMALLEST_VARIANCE).all()):
            raise DataError(f"y varies by {std.max():.0e}, beyond what variances can hold: give it in other units.")
        return cls(mean, std, is_1d, tuple(warps), varies)

    def require_varying(self, rows: int) -> None:
        """Refuse a single row and constant targets, of which mini-batches learn nothing."""
        if rows < 2:
            raise DataError(f"mini-batches need at least 2 rows and got {rows} sample: give more data.")
        if self.varies is not None and not bool(self.varies.all()):
            which = "" if len(self.std) == 1 else f" in output {int(np.argmin(self.varies))}"
            raise DataError(
                f"y is constant{which}: use inference='exact' where there is one, or give targets that vary."
            )

    def training_targets(self, y: FloatArray) -> FloatArray:
        """`scaled` targets of a fit, exactly zero where they are constant up to rounding."""
        scaled = self.scaled(y)
        return scaled if self.varies is None else np.where(self.varies[:, None], scaled, 0.0)

    def scaled(self, y: FloatArray) -> FloatArray:
        """Warped and standardised targets, ``(outputs, n)``."""
        return ((_warped(y.reshape(len(y), len(self.mean)), self.warps) - self.mean) / self.std).T

    def log_derivative(self, y: FloatArray) -> FloatArray:
        """log(d scaled / dy), ``(outputs, n)``: turns log densities of scaled targets into those of the targets."""
        values, warp = y.reshape(len(y), len(self.mean)), joint_warp(self.warps)
        return ((np.zeros_like(values) if warp is None else warp.log_derivative(values)) - np.log(self.std)).T

    def means(self, scaled: FloatArray) -> FloatArray:
        """Means ``(..., outputs, n)`` back in warped units and shape ``(..., n)`` or ``(..., n, outputs)``."""
        return self._shape(np.swapaxes(scaled, -1, -2) * self.std + self.mean)

    def variances(self, scaled: FloatArray) -> FloatArray:
        """Variances ``(..., outputs, n)`` back in warped units and the user's shape."""
        return self._shape(np.swapaxes(scaled, -1, -2) * self.std**2)

    def _shape(self, values: FloatArray) -> FloatArray:
        return values[..., 0] if self.is_1d else values


def _warped(y: FloatArray, warps: Sequence[Warp | None]) -> FloatArray:
    warp = joint_warp(warps)
    return y if warp is None else warp.forward(y)
