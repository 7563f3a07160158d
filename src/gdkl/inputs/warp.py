"""Monotone warps of a target: the model is Gaussian in warped units, predictions come back through the inverse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from gdkl.inputs.checks import FloatArray
from gdkl.inputs.function_warp import LARGEST, Function, FunctionWarp
from gdkl.numerics import DataError, ModelFileError, OptionError

#: A power this small is the logarithm to nine digits, and needs no case of its own.
_SMALLEST_POWER = 1e-10

#: A Yeo-Johnson power this close to 1 changes nothing worth an inverse.
_NEARLY_LINEAR = 0.05


class Warp(Protocol):
    """A strictly increasing map of targets to the units in which they are modelled; arrays of any shape."""

    def forward(self, y: FloatArray) -> FloatArray:
        """Warped targets; -inf or inf where ``y`` is below or above all values the warp can give."""
        ...

    def inverse(self, z: FloatArray) -> FloatArray:
        """Targets of warped ones: finite and increasing for every ``z``."""
        ...

    def log_derivative(self, y: FloatArray) -> FloatArray:
        """log(d forward / dy)."""
        ...

    def to_spec(self) -> dict[str, Any]:
        """The warp as plain JSON data, from which `warp_from_spec` builds it again."""
        ...


@dataclass(frozen=True)
class YeoJohnson:
    """Yeo and Johnson's power transform of ``u = (y - centre) / spread``, between logarithms of either side.

    ``((1 + u)^power - 1) / power`` for u ≥ 0, and ``-((1 - u)^(2 - power) - 1) / (2 - power)`` for u < 0. A power
    outside [0, 2] would give one side's inverse a pole.

    Attributes:
        centre: Median of the training targets.
        spread: Their interquartile range in standard deviations of a Gaussian.
        power: In [0, 2]; 1 is linear, less shortens the upper tail.

    Example:
        >>> warp = YeoJohnson(centre=0.0, spread=1.0, power=0.0)
        >>> warp.inverse(warp.forward(np.array([-2.0, 0.0, 9.0])))
        array([-2.,  0.,  9.])
    """

    centre: float
    spread: float
    power: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.centre) and 0 < self.spread < np.inf and 0 <= self.power <= 2):
            raise OptionError(f"{self}: use a finite centre, a spread above 0 and a power between 0 and 2.")

    @classmethod
    def fit(cls, y: FloatArray) -> YeoJohnson:
        """The power of maximum likelihood for targets ``(n,)``."""
        from scipy.optimize import minimize_scalar  # noqa: PLC0415  (slow to import)

        low, centre, high = (float(value) for value in np.quantile(y, [0.25, 0.5, 0.75]))
        # Where more than half of the targets are one value, the standard deviation is the spread.
        std = float(np.std(y))
        spread = next(value for value in ((high - low) / 1.349, std, 1.0) if value > 1e-9 * std)

        def loss(power: float) -> float:
            warp = cls(centre, spread, power)
            return 0.5 * float(np.log(np.var(warp.forward(y)))) - float(np.mean(warp.log_derivative(y)))

        found: Any = minimize_scalar(loss, bounds=(0.0, 2.0), method="bounded") if std > 0 else None
        return cls(centre, spread, 1.0 if found is None else float(found.x))

    def forward(self, y: FloatArray) -> FloatArray:
        """The power transform of the scaled targets."""
        u = (y - self.centre) / self.spread
        power = self.powers(u)
        with np.errstate(over="ignore"):
            return np.sign(u) * np.expm1(power * np.log1p(np.abs(u))) / power

    def inverse(self, z: FloatArray) -> FloatArray:
        """Targets, at most 1e150 in size."""
        power = self.powers(z)
        with np.errstate(over="ignore"):
            u = np.sign(z) * np.expm1(np.log1p(power * np.abs(z)) / power)
            return np.clip(self.centre + self.spread * u, -LARGEST, LARGEST)

    def log_derivative(self, y: FloatArray) -> FloatArray:
        """log(d forward / dy)."""
        u = (y - self.centre) / self.spread
        return (self.power - 1) * np.sign(u) * np.log1p(np.abs(u)) - np.log(self.spread)

    def to_spec(self) -> dict[str, Any]:
        """Centre, spread and power."""
        return {"kind": "yeo-johnson", "centre": self.centre, "spread": self.spread, "power": self.power}

    def powers(self, signed: FloatArray) -> FloatArray:
        """The power of each number's side: of those below 0, and of the others."""
        return np.maximum(np.where(signed < 0, 2 - self.power, self.power), _SMALLEST_POWER)


@dataclass(frozen=True)
class LogWarp:
    """The logarithm of a positive target: every quantile is positive.

    Example:
        >>> LogWarp().inverse(np.array([-1e9, 0.0])) > 0
        array([ True,  True])
    """

    def forward(self, y: FloatArray) -> FloatArray:
        """The logarithm; -inf for ``y`` at most 0."""
        return np.log(y, out=np.full(np.shape(y), -np.inf), where=np.asarray(y) > 0)

    def inverse(self, z: FloatArray) -> FloatArray:
        """Targets above 0, at most 1e150."""
        with np.errstate(over="ignore"):
            return np.clip(np.exp(z), np.finfo(np.float64).tiny, LARGEST)

    def log_derivative(self, y: FloatArray) -> FloatArray:
        """-log y."""
        # Finite where the density is 0, so that its logarithm stays -inf there.
        return -np.log(np.maximum(y, np.finfo(np.float64).tiny))

    def to_spec(self) -> dict[str, Any]:
        """Its kind alone."""
        return {"kind": "log"}


@dataclass(frozen=True)
class LinearTails:
    """A warp up to the last training target on either side, and its tangents beyond.

    The inverse of a logarithm is exponential: without tangents the mean of a wide prediction, far from the training
    rows, is many orders of magnitude beyond any target.

    Attributes:
        warp: Inside.
        low, high: Where the tangents begin; None for none on that side.

    Example:
        >>> warp = LinearTails(LogWarp(), None, 10.0)
        >>> warp.inverse(np.array([0.0, np.log(10.0) + 3.0])).round(6)
        array([ 1., 40.])
    """

    warp: Warp
    low: float | None
    high: float | None

    def forward(self, y: FloatArray) -> FloatArray:
        """The warp, or a tangent."""
        inside = self._inside(y)
        return self.warp.forward(inside) + (y - inside) * np.exp(self.warp.log_derivative(inside))

    def inverse(self, z: FloatArray) -> FloatArray:
        """The inverse of either, at most 1e150 in size."""
        ends = (None if end is None else float(self.warp.forward(np.array([end]))[0]) for end in (self.low, self.high))
        low, high = ends
        inside = np.clip(z, low, high)
        y = self.warp.inverse(inside)
        return np.clip(y + (z - inside) * np.exp(-self.warp.log_derivative(y)), -LARGEST, LARGEST)

    def log_derivative(self, y: FloatArray) -> FloatArray:
        """log(d forward / dy)."""
        return self.warp.log_derivative(self._inside(y))

    def to_spec(self) -> dict[str, Any]:
        """The warp inside, and the ends."""
        return {"kind": "linear-tails", "warp": self.warp.to_spec(), "low": self.low, "high": self.high}

    def _inside(self, y: FloatArray) -> FloatArray:
        return np.clip(y, self.low, self.high)


def check_warp_option(warp: Any) -> None:
    """Refuse what is neither "auto", None, "log" nor a pair of functions."""
    if warp is None or (isinstance(warp, str) and warp in ("auto", "log")):
        return
    pair = cast("Sequence[Any]", warp) if isinstance(warp, (tuple, list)) else ()
    if len(pair) != 2 or not all(callable(function) for function in pair):
        raise OptionError(f"warp={warp!r} is not known: use 'auto', 'log', None or a pair (function, its inverse).")


def candidate_warps(y: FloatArray, option: Any = "auto") -> list[Warp | None]:
    """The warps to choose among for one target ``(n,)``; of a fixed option there is one.

    Example:
        >>> [warp and type(warp.warp).__name__ for warp in candidate_warps(np.exp(np.linspace(-2.0, 2.0, 50)))]
        [None, 'YeoJohnson', 'LogWarp']
    """
    check_warp_option(option)
    positive = bool((y > 0).all())
    if option is None:
        return [None]
    if option == "log":
        if not positive:
            raise DataError(f"warp='log' needs targets above 0, and the smallest is {y.min():.6g}: use warp='auto'.")
        return [LogWarp()]
    if option != "auto":
        return [FunctionWarp.fit(option[0], option[1], y)]
    found: list[Warp | None] = [None]
    power, low, high = YeoJohnson.fit(y), float(y.min()), float(y.max())
    if abs(power.power - 1) > _NEARLY_LINEAR:
        found.append(LinearTails(power, low, high))
    # With a tangent below the smallest target a target of zero is not impossible.
    return [*found, LinearTails(LogWarp(), low, high)] if positive else found


def warp_from_spec(spec: Mapping[str, Any] | None, functions: tuple[Function, Function] | None = None) -> Warp | None:
    """The warp whose ``to_spec()`` is given; a user's own needs its pair of functions again.

    Example:
        >>> warp_from_spec(LogWarp().to_spec())
        LogWarp()
    """
    if spec is None:
        return None
    own = spec.get("kind") == "functions"
    if own and functions is None:
        raise ModelFileError("the target was warped by functions: pass factories={'warp': (function, inverse)}.")
    makers: dict[str, Callable[..., Warp]] = {"yeo-johnson": YeoJohnson, "log": LogWarp, "functions": FunctionWarp}
    try:
        if spec["kind"] == "linear-tails":
            low, high = (None if spec[name] is None else float(spec[name]) for name in ("low", "high"))
            return LinearTails(cast(Warp, warp_from_spec(spec["warp"])), low, high)
        values = {name: float(value) for name, value in spec.items() if name != "kind"}
        return makers[spec["kind"]](*(functions if own and functions else ()), **values)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"the warp of the target in this file cannot be read: {dict(spec)}.") from error


@dataclass(frozen=True)
class OutputWarps:
    """The warps of several outputs as one, along the last axis of an array."""

    warps: tuple[Warp | None, ...]

    def forward(self, y: FloatArray) -> FloatArray:
        """Warped targets ``(..., outputs)``."""
        return self._each(y, y, lambda warp, part: warp.forward(part))

    def inverse(self, z: FloatArray) -> FloatArray:
        """Targets of warped ones, ``(..., outputs)``."""
        return self._each(z, z, lambda warp, part: warp.inverse(part))

    def log_derivative(self, y: FloatArray) -> FloatArray:
        """log(d forward / dy), ``(..., outputs)``."""
        return self._each(y, np.zeros_like(y), lambda warp, part: warp.log_derivative(part))

    def _each(
        self, values: FloatArray, unwarped: FloatArray, change: Callable[[Warp, FloatArray], FloatArray]
    ) -> FloatArray:
        result = unwarped.copy()
        for k, warp in enumerate(self.warps):
            if warp is not None:
                result[..., k] = change(warp, values[..., k])
        return result


def joint_warp(warps: Sequence[Warp | None]) -> Warp | OutputWarps | None:
    """One warp for all outputs; None where no output has one."""
    if not any(warps):
        return None
    return warps[0] if len(warps) == 1 else OutputWarps(tuple(warps))
