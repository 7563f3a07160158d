"""A user's own warp of the target: a function and its inverse, checked on the training targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gdkl.inputs.checks import FloatArray
from gdkl.numerics import OptionError

Function: TypeAlias = Callable[[FloatArray], FloatArray]

#: No inverse goes further, so that squares of targets, and with them variances, stay finite.
LARGEST = 1e150


@dataclass(frozen=True)
class FunctionWarp:
    """A user's increasing function of the target and its inverse; `fit` checks them on the training targets.

    Attributes:
        function: Of an array of targets.
        undo: Its inverse.
        low: Smallest warped value on which the two undo each other; below it the inverse stays constant.
        high: Largest such value.
        step: Of warped values, for numerical derivatives.

    Example:
        >>> warp = FunctionWarp.fit(np.sqrt, np.square, np.array([1.0, 4.0, 9.0]))
        >>> warp.inverse(np.array([-1.0, 3.0])).round(6)
        array([0., 9.])
    """

    function: Function
    undo: Function
    low: float
    high: float
    step: float

    @classmethod
    def fit(cls, function: Function, undo: Function, y: FloatArray) -> FunctionWarp:
        """Check the functions on targets ``(n,)`` and find how far beyond these they undo each other.

        Raises:
            OptionError: If they are not finite, increasing and each other's inverse on ``y``.
        """
        y = np.unique(y)
        try:
            with np.errstate(all="ignore"):
                z = np.asarray(function(y), dtype=np.float64)
                back = np.asarray(undo(z), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise OptionError(f"warp needs functions of arrays: {str(error).splitlines()[0]}.") from error
        if z.shape != y.shape or back.shape != y.shape or not bool(np.isfinite(z).all()):
            raise OptionError("warp's first function must give one finite number per target: choose one that does.")
        if bool((np.diff(z) < 0).any()):
            raise OptionError("warp's first function must increase with the target: change its sign or choose another.")
        if not np.allclose(back, y, rtol=1e-6, atol=1e-6 * float(np.std(y))):
            worst = int(np.nanargmax(np.where(np.isfinite(back), np.abs(back - y), np.inf)))
            became = f"{y[worst]:.6g} comes back as {back[worst]:.6g}"
            raise OptionError(f"warp's second function must undo the first, and {became}: give its inverse.")
        scale = float(np.std(z)) or 1.0

        def reach(end: float, step: float) -> float:
            # Longer steps while the functions undo each other, shorter ones where they do not.
            for _ in range(200):
                z = np.array([end + step])
                y = undo(z)
                error = abs(float(function(y)[0] - z[0]))
                valid = abs(float(y[0])) <= LARGEST and error <= 1e-9 * (abs(end) + scale)
                end, step = (end + step, 2 * step) if valid else (end, step / 2)
            return end

        first, last = float(z[0]), float(z[-1])
        with np.errstate(all="ignore"):
            low, high = reach(first, -scale), reach(last, scale)
        # An end that is beyond the targets by rounding alone is theirs: counts have zeros.
        near = 1e-6 * scale
        low, high = (first if first - low < near else low), (last if high - last < near else high)
        return cls(function, undo, low, high, 1e-5 * scale)

    def forward(self, y: FloatArray) -> FloatArray:
        """The user's function; -inf or inf where it has no value."""
        middle = self.undo(np.array([0.5 * (self.low + self.high)]))
        with np.errstate(all="ignore"):
            z = self.function(y)
        return np.where(np.isnan(z), np.where(y < middle, -np.inf, np.inf), z)

    def inverse(self, z: FloatArray) -> FloatArray:
        """The user's inverse, constant beyond ``low`` and ``high``."""
        return self.undo(np.clip(z, self.low, self.high))

    def log_derivative(self, y: FloatArray) -> FloatArray:
        """By central differences of the inverse."""
        z = self.forward(y)
        below, above = (np.clip(z + step, self.low, self.high) for step in (-self.step, self.step))
        with np.errstate(all="ignore"):
            slope = np.log(above - below) - np.log(self.undo(above) - self.undo(below))
        # Finite where the density is 0, so that its logarithm stays -inf there.
        return np.where((z >= self.low) & (z <= self.high), slope, 0.0)

    def to_spec(self) -> dict[str, Any]:
        """Without the functions, which the user passes again."""
        return {"kind": "functions", "low": self.low, "high": self.high, "step": self.step}
