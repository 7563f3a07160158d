# ruff: noqa: D102 - the abstract formula says what each method is
"""Element-wise functions of a pair's covariance k, each written once for every machine.

An activation takes k to E[φ(u)φ(v)], given factors of either input that follow from its variance alone. The variance
behind it is the same formula with k = q and both factors the input's own: identical inputs keep a correlation of one.

Piecewise linear activations need E|uv| = s·A, s = √(q1·q2), A = (2/π)·(√(1 − c²) + c·arcsin c), c = k/s. It is
Lipschitz in k, so that single precision is enough; there the arcsine is too slow. `ArcPolynomial` has no division and
few instructions, `ArcFraction` the fewest passes over memory. Functions that are not Lipschitz (the arcsine of `Erf`
has infinite slope at its end) are computed in double precision.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from gdkl.infinite.machine import Arithmetic, Value


class Formula(ABC):
    """What an operation makes of each pixel."""

    #: Factors that an input contributes.
    planes: ClassVar[int] = 1

    @abstractmethod
    def factors(self, machine: Arithmetic, q: Value) -> Sequence[Value]:
        """The factors of an input with this variance."""

    @abstractmethod
    def pair(self, machine: Arithmetic, k: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        """The covariance behind the operation."""

    def variance(self, machine: Arithmetic, q: Value, factors: Sequence[Value]) -> Value:
        """The variance behind the operation."""
        return self.pair(machine, q, factors, factors)


@dataclass(frozen=True)
class ArcCosine(Formula):
    """ratio·k + E|uv|, the arc-cosine kernel of order one; half of that for a ratio of one where ``halved``."""

    halved: ClassVar[bool] = True
    ratio: float

    @property
    def gain(self) -> float:
        """By how much the formula is too small."""
        return 2.0 if self.halved and self.ratio == 1 else 1.0

    def factors(self, machine: Arithmetic, q: Value) -> Sequence[Value]:
        """√q, from which √(q1·q2) follows."""
        return [machine.quick_root(q)]

    def variance(self, machine: Arithmetic, q: Value, factors: Sequence[Value]) -> Value:
        """A is one for equal inputs."""
        return q if self.halved and self.ratio == 1 else machine.fma(machine.number(self.ratio), q, q)


@dataclass(frozen=True)
class ArcPolynomial(ArcCosine):
    """Single precision on a GPU: E|uv| = |k| + 2·s·B(m), m = 1 − |k|/s, with s·B = d·√m·P(m), d = s − |k|."""

    #: B = (sin θ − θ·cos θ)/π = m^1.5 · P(m) for m = 1 − cos θ up to a right angle, right to 8e-9.
    P: ClassVar[tuple[float, ...]] = (
        0.3001039351447002,
        0.015027403610033133,
        0.0022963706939189503,
        0.000838204242501595,
        -0.00017966596648501636,
        0.00022363047522074117,
    )

    def pair(self, machine: Arithmetic, k: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        """max(k, 0) + s·B, or ratio·k + |k| + 2·s·B."""
        s = machine.multiply(first[0], second[0])
        size = machine.function("fabs", k)
        d = machine.subtract(s, size)
        # With s = 0, d·√m is zero, too.
        m = machine.clipped_ratio(d, s)
        root = machine.quick_root(m)
        bend = machine.number(self.P[-1])
        for coefficient in reversed(self.P[:-1]):
            bend = machine.fma(bend, m, machine.number(coefficient))
        rest = machine.multiply(d, root)
        if self.ratio == 1:
            return machine.fma(rest, bend, machine.function("fmax", k, machine.number(0.0)))
        return machine.fma(machine.add(rest, rest), bend, machine.fma(machine.number(self.ratio), k, size))


@dataclass(frozen=True)
class ArcFraction(ArcCosine):
    """Single precision on a CPU: A = 1 + STRAIGHT·h + Σ weight·h/(√h + pole), h = (1 − c²)/2, to 2e-8."""

    halved: ClassVar[bool] = False
    STRAIGHT: ClassVar[float] = -0.08847771105351968
    POLES: ClassVar[tuple[tuple[float, float], ...]] = (
        (-0.40194618293848877, 0.9735571251871405),
        (-1.4140688795960852, 2.835827973488307),
    )

    def pair(self, machine: Arithmetic, k: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        """s·(ratio·c + A), with u = 1 + c, from which h = u − u²/2."""
        s = machine.multiply(first[0], second[0])
        u = machine.clip(machine.add(machine.function("divide", k, s), machine.number(1.0)), 0.0, 2.0)
        h = machine.fma(machine.multiply(u, machine.number(-0.5)), u, u)
        root = machine.quick_root(h)
        total = u
        if self.ratio != 1:
            total = machine.fma(u, machine.number(self.ratio), machine.number(1 - self.ratio))
        total = machine.fma(h, machine.number(self.STRAIGHT), total)
        for weight, pole in self.POLES:
            quotient = machine.function("divide", h, machine.add(root, machine.number(pole)))
            total = machine.fma(quotient, machine.number(weight), total)
        return machine.multiply(total, s)


@dataclass(frozen=True)
class ArcSine(ArcCosine):
    """Double precision: the function itself."""

    planes: ClassVar[int] = 2

    def factors(self, machine: Arithmetic, q: Value) -> Sequence[Value]:
        """√q and 1/√q."""
        return [machine.function("sqrt", q), machine.reciprocal_root(q)]

    def pair(self, machine: Arithmetic, k: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        """(k + s·A)/2, or ratio·k + s·A."""
        s = machine.multiply(first[0], second[0])
        c = machine.clip(machine.multiply(machine.multiply(k, first[1]), second[1]), -1.0, 1.0)
        one = machine.number(1.0)
        sine = machine.function("sqrt", machine.multiply(machine.subtract(one, c), machine.add(one, c)))
        half = machine.fma(c, machine.function("asin", c), sine)
        halved = self.ratio == 1
        arc = machine.multiply(machine.multiply(half, s), machine.number((1 if halved else 2) / math.pi))
        return machine.fma(k, machine.number(0.5 if halved else self.ratio), arc)


@dataclass(frozen=True)
class ErrorFunction(Formula):
    """Height·arcsin(β·k / √((1 + β·q1)(1 + β·q2))) + offset."""

    beta: float
    height: float
    offset: float

    def factors(self, machine: Arithmetic, q: Value) -> Sequence[Value]:
        """1/√(1 + β·q)."""
        return [machine.reciprocal_root(machine.fma(machine.number(self.beta), q, machine.number(1.0)))]

    def pair(self, machine: Arithmetic, k: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        x = machine.multiply(machine.multiply(machine.number(self.beta), k), first[0])
        arc = machine.function("asin", machine.clip(machine.multiply(x, second[0]), -1.0, 1.0))
        return machine.fma(machine.number(self.height), arc, machine.number(self.offset))


@dataclass(frozen=True)
class Wave(Formula):
    """odd·(e^−D − e^−Σ) + even·(e^−D + e^−Σ), D, Σ = ½b²(q1 + q2 ∓ 2k); small variances keep their digits."""

    square: float
    odd: float
    even: float

    def factors(self, machine: Arithmetic, q: Value) -> Sequence[Value]:
        """½·b²·q."""
        return [machine.multiply(machine.multiply(machine.number(self.square), machine.number(0.5)), q)]

    def pair(self, machine: Arithmetic, k: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        x = machine.multiply(machine.number(self.square), k)
        size = machine.function("fabs", x)
        # |k| is at most (q1 + q2)/2; a lane beyond the map has a k but factors of zero, and must stay a number.
        exponent = machine.subtract(size, machine.add(first[0], second[0]))
        larger = machine.function("exp", machine.function("fmin", exponent, machine.number(0.0)))
        # e^(−2|x|) − 1, from −1 to 0.
        fall = machine.function("expm1", machine.multiply(size, machine.number(-2.0)))
        swing = machine.function("copysign", machine.multiply(larger, fall), x)
        both = machine.fma(larger, fall, machine.add(larger, larger))
        return machine.fma(machine.number(self.odd), swing, machine.multiply(machine.number(self.even), both))


@dataclass(frozen=True)
class Bump(Formula):
    """Height / √(1 + β(q1 + q2) + β²(q1·q2 − k²))."""

    beta: float
    height: float

    def factors(self, machine: Arithmetic, q: Value) -> Sequence[Value]:
        """β·q."""
        return [machine.multiply(machine.number(self.beta), q)]

    def pair(self, machine: Arithmetic, k: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        x = machine.multiply(machine.number(self.beta), k)
        one = machine.number(1.0)
        rest = machine.subtract(machine.multiply(first[0], second[0]), machine.multiply(x, x))
        rest = machine.function("fmax", rest, machine.number(0.0))
        square = machine.add(one, machine.add(machine.add(first[0], second[0]), rest))
        return machine.multiply(machine.number(self.height), machine.reciprocal_root(square))


@dataclass(frozen=True)
class ErrorLinear(Formula):
    """k·F + (q1·q2·√D + k²/√D)/(2π·P), P = (1 + q1)(1 + q2), D = P − k², F = ¼ + arcsin(k/√P)/2π."""

    planes: ClassVar[int] = 2

    def factors(self, machine: Arithmetic, q: Value) -> Sequence[Value]:
        """1/√(1 + q) and q/√(1 + q)."""
        p = machine.reciprocal_root(machine.add(machine.number(1.0), q))
        return [p, machine.multiply(q, p)]

    def pair(self, machine: Arithmetic, k: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        """With x = k/√P and y = √(1 − x²): k·F + q1·q2/√P·y/2π + k·x/(2π·P·y)."""
        p = machine.multiply(first[0], second[0])
        x = machine.clip(machine.multiply(k, p), -1.0, 1.0)
        one, tau = machine.number(1.0), machine.number(1 / (2 * math.pi))
        y = machine.function("sqrt", machine.multiply(machine.subtract(one, x), machine.add(one, x)))
        # 1 − x² is at least either 1/(1 + q), which is all that is left of it for the largest inputs.
        y = machine.function("fmax", y, machine.function("fmax", first[0], second[0]))
        F = machine.fma(machine.function("asin", x), tau, machine.number(0.25))
        spread = machine.multiply(machine.multiply(first[1], second[1]), y)
        slant = machine.multiply(machine.multiply(machine.multiply(k, x), p), machine.function("divide", p, y))
        return machine.fma(k, F, machine.multiply(machine.add(spread, slant), tau))


@dataclass(frozen=True)
class Normalised(Formula):
    """k / √((q1 + ε)(q2 + ε))."""

    eps: float

    def factors(self, machine: Arithmetic, q: Value) -> Sequence[Value]:
        """1/√(q + ε)."""
        return [machine.reciprocal_root(machine.add(q, machine.number(self.eps)))]

    def pair(self, machine: Arithmetic, k: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        return machine.multiply(machine.multiply(k, first[0]), second[0])
