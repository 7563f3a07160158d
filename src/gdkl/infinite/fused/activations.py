"""Element-wise functions of a pair's covariance k, each written once for every machine.

An activation takes k to E[φ(u)φ(v)], given notes of either input that follow from its variance alone. The variance
behind it is the same formula with k = q and both notes the input's own, so that identical inputs keep a
correlation of one.

Straight-line activations rest on E|uv| = |k| + 2·s·B with s = √(q1·q2) and

    B(m) = (sin θ − θ·cos θ)/π,   cos θ = m − 1 turned to the near side: m = 1 − |k|/s,

which is m^1.5 times a polynomial in m: no arcsine, and with d = s − |k| the term is s·B = d·√m·P(m). The kernel is
Lipschitz in k, so that single precision is enough. Functions that are not (the arcsine of `Erf` has infinite slope
at its end) are computed in double precision.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from gdkl.infinite.fused.machine import Machine, Value

#: (sin θ − θ·cos θ)/π = m^1.5 · P(m) for m = 1 − cos θ up to a right angle, right to 8e-9.
BEND = (
    0.3001039351447002,
    0.015027403610033133,
    0.0022963706939189503,
    0.000838204242501595,
    -0.00017966596648501636,
    0.00022363047522074117,
)


class Formula(ABC):
    """What an operation makes of each pixel."""

    #: Notes an input makes for it.
    planes: ClassVar[int] = 1

    @abstractmethod
    def notes(self, machine: Machine, q: Value) -> Sequence[Value]:
        """The notes of an input with this variance."""

    @abstractmethod
    def pair(self, machine: Machine, k: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        """The covariance behind the operation."""

    def variance(self, machine: Machine, q: Value, notes: Sequence[Value]) -> Value:
        """The variance behind the operation."""
        return self.pair(machine, q, notes, notes)


@dataclass(frozen=True)
class Bend(Formula):
    """Two straight lines in single precision: max(k, 0) + s·B, or ratio·k + |k| + 2·s·B.

    Attributes:
        ratio: Number of the constant odd/even; None for one, where the result is half of that.
    """

    ratio: int | None

    def notes(self, machine: Machine, q: Value) -> Sequence[Value]:
        """√q."""
        return [machine.quick("sqrt", q)]

    def pair(self, machine: Machine, k: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        """As above."""
        s = machine.multiply(first[0], second[0])
        size = machine.function("fabs", k)
        d = machine.subtract(s, size)
        # With s = 0 the product is no number, which counts as zero: then d·√m is zero, too.
        m = machine.clipped_product(d, machine.quick("rcp", s))
        root = machine.quick("sqrt", m)
        bend = machine.number(BEND[-1])
        for coefficient in reversed(BEND[:-1]):
            bend = machine.fma(bend, m, machine.number(coefficient))
        rest = machine.multiply(d, root)
        if self.ratio is None:
            return machine.fma(rest, bend, machine.function("fmax", k, machine.number(0.0)))
        return machine.fma(machine.add(rest, rest), bend, machine.fma(machine.constant(self.ratio), k, size))

    def variance(self, machine: Machine, q: Value, notes: Sequence[Value]) -> Value:
        """Nothing is left of the bend."""
        del notes
        return q if self.ratio is None else machine.fma(machine.constant(self.ratio), q, q)


@dataclass(frozen=True)
class Arc(Formula):
    """Two straight lines in double precision: (k + s·A)/2 or ratio·k + s·A, A·π/2 = √(1 − c²) + c·arcsin c."""

    planes: ClassVar[int] = 2
    ratio: int | None

    def notes(self, machine: Machine, q: Value) -> Sequence[Value]:
        """√q and 1/√q."""
        return [machine.function("sqrt", q), machine.reciprocal_root(q)]

    def pair(self, machine: Machine, k: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        """As above."""
        s = machine.multiply(first[0], second[0])
        c = cut(machine, machine.multiply(machine.multiply(k, first[1]), second[1]))
        one = machine.number(1.0)
        sine = machine.function("sqrt", machine.multiply(machine.subtract(one, c), machine.add(one, c)))
        half = machine.fma(c, machine.function("asin", c), sine)
        if self.ratio is None:
            arc = machine.multiply(machine.multiply(half, s), machine.number(1 / math.pi))
            return machine.fma(k, machine.number(0.5), arc)
        arc = machine.multiply(machine.multiply(half, s), machine.number(2 / math.pi))
        return machine.fma(machine.constant(self.ratio), k, arc)

    def variance(self, machine: Machine, q: Value, notes: Sequence[Value]) -> Value:
        """At c = 1 the arc is one."""
        del notes
        return q if self.ratio is None else machine.fma(machine.constant(self.ratio), q, q)


@dataclass(frozen=True)
class ErrorFunction(Formula):
    """Height·arcsin(β·k / √((1 + β·q1)(1 + β·q2))) + offset; constants by number."""

    beta: int
    height: int
    offset: int

    def notes(self, machine: Machine, q: Value) -> Sequence[Value]:
        """1/√(1 + β·q)."""
        return [machine.reciprocal_root(machine.fma(machine.constant(self.beta), q, machine.number(1.0)))]

    def pair(self, machine: Machine, k: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        """As above."""
        x = machine.multiply(machine.multiply(machine.constant(self.beta), k), first[0])
        arc = machine.function("asin", cut(machine, machine.multiply(x, second[0])))
        return machine.fma(machine.constant(self.height), arc, machine.constant(self.offset))


@dataclass(frozen=True)
class Wave(Formula):
    """odd·(e^−D − e^−Σ) + even·(e^−D + e^−Σ), D, Σ = ½b²(q1 + q2 ∓ 2k); constants by number.

    The difference is taken with what both have in common outside, so that small variances keep their digits.
    """

    square: int
    odd: int
    even: int

    def notes(self, machine: Machine, q: Value) -> Sequence[Value]:
        """½·b²·q."""
        return [machine.multiply(machine.multiply(machine.constant(self.square), machine.number(0.5)), q)]

    def pair(self, machine: Machine, k: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        """As above."""
        x = machine.multiply(machine.constant(self.square), k)
        size = machine.function("fabs", x)
        # |k| is at most (q1 + q2)/2; a lane beyond the map has a k but notes of zero, and must stay a number.
        exponent = machine.subtract(size, machine.add(first[0], second[0]))
        larger = machine.function("exp", machine.function("fmin", exponent, machine.number(0.0)))
        # e^(−2|x|) − 1, from −1 to 0.
        fall = machine.function("expm1", machine.multiply(size, machine.number(-2.0)))
        swing = machine.function("copysign", machine.multiply(larger, fall), x)
        both = machine.fma(larger, fall, machine.add(larger, larger))
        return machine.fma(machine.constant(self.odd), swing, machine.multiply(machine.constant(self.even), both))


@dataclass(frozen=True)
class Bump(Formula):
    """Height / √(1 + β(q1 + q2) + β²(q1·q2 − k²)); constants by number."""

    beta: int
    height: int

    def notes(self, machine: Machine, q: Value) -> Sequence[Value]:
        """β·q."""
        return [machine.multiply(machine.constant(self.beta), q)]

    def pair(self, machine: Machine, k: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        """As above."""
        x = machine.multiply(machine.constant(self.beta), k)
        one = machine.number(1.0)
        rest = machine.subtract(machine.multiply(first[0], second[0]), machine.multiply(x, x))
        rest = machine.function("fmax", rest, machine.number(0.0))
        square = machine.add(one, machine.add(machine.add(first[0], second[0]), rest))
        return machine.multiply(machine.constant(self.height), machine.reciprocal_root(square))


@dataclass(frozen=True)
class ErrorLinear(Formula):
    """k·F + (q1·q2·√D + k²/√D)/(2π·P), P = (1 + q1)(1 + q2), D = P − k², F = ¼ + arcsin(k/√P)/2π."""

    planes: ClassVar[int] = 2

    def notes(self, machine: Machine, q: Value) -> Sequence[Value]:
        """1/√(1 + q) and q/√(1 + q)."""
        p = machine.reciprocal_root(machine.add(machine.number(1.0), q))
        return [p, machine.multiply(q, p)]

    def pair(self, machine: Machine, k: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        """With x = k/√P and y = √(1 − x²): k·F + q1·q2/√P·y/2π + k·x/(2π·P·y)."""
        p = machine.multiply(first[0], second[0])
        x = cut(machine, machine.multiply(k, p))
        one, tau = machine.number(1.0), machine.number(1 / (2 * math.pi))
        y = machine.function("sqrt", machine.multiply(machine.subtract(one, x), machine.add(one, x)))
        # 1 − x² is at least either 1/(1 + q), which is all that is left of it for the largest inputs.
        y = machine.function("fmax", y, machine.function("fmax", first[0], second[0]))
        F = machine.fma(machine.function("asin", x), tau, machine.number(0.25))
        spread = machine.multiply(machine.multiply(first[1], second[1]), y)
        slant = machine.multiply(machine.multiply(machine.multiply(k, x), p), machine.function("divide", p, y))
        return machine.fma(k, F, machine.multiply(machine.add(spread, slant), tau))


@dataclass(frozen=True)
class Normalise(Formula):
    """k / √((q1 + ε)(q2 + ε)); ε by number."""

    eps: int

    def notes(self, machine: Machine, q: Value) -> Sequence[Value]:
        """1/√(q + ε)."""
        return [machine.reciprocal_root(machine.add(q, machine.constant(self.eps)))]

    def pair(self, machine: Machine, k: Value, first: Sequence[Value], second: Sequence[Value]) -> Value:
        """As above."""
        return machine.multiply(machine.multiply(k, first[0]), second[0])


def cut(machine: Machine, c: Value) -> Value:
    """A correlation without what rounding has added to it."""
    high = machine.function("fmin", c, machine.number(1.0))
    return machine.function("fmax", high, machine.number(-1.0))
