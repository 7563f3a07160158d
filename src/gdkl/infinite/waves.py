"""The Gaussian bump, sines and cosines, and the one of them whose kernel is the squared exponential.

A wave of frequency b splits into an odd part sin(b·x) and an even part cos(b·x) that do not correlate. With

    D = b²/2 · (q1 + q2 − 2k),   Σ = b²/2 · (q1 + q2 + 2k)

they have E[sin sin] = (e^−D − e^−Σ)/2 and E[cos cos] = (e^−D + e^−Σ)/2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gdkl.infinite.activation import Activation, Pair
from gdkl.infinite.arrays import finite_number
from gdkl.infinite.formulas import Bump, Formula, Wave
from gdkl.infinite.state import safe_divide, safe_sqrt
from gdkl.numerics import OptionError


class _Wave(Activation):
    """height · (√odd · sin(b·x) ± √even · cos(b·x)), odd + even = 1."""

    def __init__(self, height: float, frequency: float, odd: float, even: float) -> None:
        self._height2, self._b2 = height**2, frequency**2
        self._odd_part, self._even_part = odd, even
        self._odd = even == 0

    def variance(self, q: Tensor) -> Tensor:
        """½·height²·(1 − (odd − even)·e^(−2b²q))."""
        fall = -torch.expm1(-2 * self._b2 * q)
        return self._height2 / 2 * (self._odd_part * fall + self._even_part * (2 - fall))

    def deficit(self, pair: Pair) -> Tensor:
        """1 − c' = (√(q1'·q2') − k'(c = 1) + k'(c = 1) − k') / √(q1'·q2'), each difference in closed form."""
        b2, odd, even = self._b2, self._odd_part, self._even_part
        r1, r2 = safe_sqrt(pair.q1), safe_sqrt(pair.q2)
        s = r1 * r2
        # In units of height²/2 throughout.
        scale = (2 / self._height2) * safe_sqrt(self.variance(pair.q1)) * safe_sqrt(self.variance(pair.q2))
        distance = b2 / 2 * (r1 - r2).square()
        level = torch.exp(-distance)
        fall = -torch.expm1(-2 * b2 * s)
        parallel = level * (odd * fall + even * (2 - fall))
        # 4·(q1'·q2' − k'²) at c = 1: zero where the variances are equal, and known relatively nearby. For small
        # variances its terms are small themselves: each is taken by expm1.
        rest = 4 * odd * even - (odd - even) ** 2 * torch.expm1(-b2 * (r1 + r2).square())
        smaller = torch.minimum(pair.q1, pair.q2)
        difference = torch.exp(-b2 * smaller) * torch.expm1(-b2 * (pair.q1 - pair.q2).abs())
        term = -torch.expm1(-2 * distance) * rest
        excess = term - (odd - even) * difference.square()
        # Rounding leaves an ulp of the term in one way and an ulp of √(q1'·q2') in the other: the smaller one counts.
        close = term <= scale.square()
        across = torch.where(close, safe_divide(excess, scale + parallel, otherwise=0.0), scale - parallel)
        opposite = torch.exp(-distance - b2 * s * pair.u)
        along = -torch.expm1(-b2 * s * pair.t) * (2 * odd * opposite - level * torch.expm1(-b2 * s * pair.u))
        return safe_divide(across.clamp_min(0) + along, scale, otherwise=1.0)

    def slope(self, pair: Pair) -> Tensor:
        """height²·b² · (odd·E[cos cos] + even·E[sin sin])."""
        b2 = self._b2
        r1, r2 = safe_sqrt(pair.q1), safe_sqrt(pair.q2)
        s = r1 * r2
        distance = b2 / 2 * (r1 - r2).square()
        larger = torch.exp(-distance - b2 * s * torch.minimum(pair.t, pair.u))
        smaller = torch.exp(-distance - b2 * s * torch.maximum(pair.t, pair.u))
        # e^−D − e^−Σ for small exponents is a difference of nearly equal numbers: take it by expm1.
        swing = -larger * torch.expm1(-b2 * s * (pair.u - pair.t).abs()) * torch.sign(pair.u - pair.t)
        return self._height2 * b2 / 2 * (self._odd_part * (larger + smaller) + self._even_part * swing)

    def _formula(self) -> Formula:
        half = self._height2 / 2
        return Wave(self._b2, half * self._odd_part, half * self._even_part)


class _Phased(_Wave):
    """a·f(b·x + c), f the sine or the cosine."""

    _entries = ("a", "b", "c")

    def __init__(self, a: float = 1.0, b: float = 1.0, c: float = 0.0) -> None:
        self.a, self.b, self.c = finite_number(a, "a"), finite_number(b, "b"), finite_number(c, "c")
        parts = math.cos(self.c) ** 2, math.sin(self.c) ** 2
        super().__init__(self.a, self.b, *(parts if self._name == "sin" else parts[::-1]))

    def function(self, x: Tensor) -> Tensor:
        """a·f(b·x + c)."""
        return self.a * (torch.sin if self._name == "sin" else torch.cos)(self.b * x + self.c)


class Sin(_Phased):
    """φ(x) = a·sin(b·x + c), with height a, frequency b and phase c.

    Example:
        >>> Sin().diagonal(torch.tensor([[0.0], [1e3]]))
        tensor([0.0000, 0.5000])
    """

    _name = "sin"


class Cos(_Phased):
    """φ(x) = a·cos(b·x + c), with height a, frequency b and phase c.

    Example:
        >>> Cos().diagonal(torch.tensor([[0.0], [1e3]]))
        tensor([1.0000, 0.5000])
    """

    _name = "cos"


class RBF(_Wave):
    """φ(x) = √2·sin(√(2·gamma)·x + π/4), whose kernel is exp(−gamma·(q1 + q2 − 2k)); gamma is 1 / length².

    Example:
        >>> RBF(gamma=0.5).kernel(torch.tensor([[0.0], [1.0]]))
        tensor([[1.0000, 0.6065],
                [0.6065, 1.0000]])
    """

    _name, _entries = "rbf", ("gamma",)

    def __init__(self, gamma: float = 1.0) -> None:
        self.gamma = finite_number(gamma, "gamma", least=0.0)
        super().__init__(math.sqrt(2), math.sqrt(2 * self.gamma), 0.5, 0.5)

    def function(self, x: Tensor) -> Tensor:
        """√2·sin(√(2·gamma)·x + π/4)."""
        return math.sqrt(2) * torch.sin(math.sqrt(2 * self.gamma) * x + math.pi / 4)


class Gaussian(Activation):
    """φ(x) = a·exp(b·x²), with height a and curvature b, at most zero.

    With β = −2b the kernel is a² / √D, D = 1 + β(q1 + q2) + β²(q1·q2 − k²).

    Example:
        >>> Gaussian().diagonal(torch.tensor([[0.0], [2.0]]))
        tensor([1.0000, 0.2425])
    """

    _name, _entries = "gaussian", ("a", "b")

    def __init__(self, a: float = 1.0, b: float = -1.0) -> None:
        self.a, self.b = finite_number(a, "a"), finite_number(b, "b")
        if self.b > 0:
            raise OptionError(f"b must be at most 0, or the function has no variance; got {b!r}.")

    def variance(self, q: Tensor) -> Tensor:
        """a² / √(1 + 2βq)."""
        return self.a**2 * (1 - 4 * self.b * q).rsqrt()

    def deficit(self, pair: Pair) -> Tensor:
        """1 − (D1·D2/D²)^¼, Di = 1 + 2β·qi; D² − D1·D2 = β²(q1 − q2)² + 2(1 + β(q1 + q2))·X + X²."""
        beta = -2 * self.b
        base = 1 + beta * (pair.q1 + pair.q2)
        X, D = self._determinant(pair)
        y = (beta**2 * (pair.q1 - pair.q2).square() + 2 * base * X + X.square()) / D.square()
        near = y < 0.5
        small = -torch.expm1(0.25 * torch.log1p(-torch.where(near, y, 0)))
        plain = 1 - ((1 + 2 * beta * pair.q1) * (1 + 2 * beta * pair.q2)) ** 0.25 / D.sqrt()
        return torch.where(near, small, plain)

    def slope(self, pair: Pair) -> Tensor:
        """a²β²·k / D^(3/2)."""
        k = safe_sqrt(pair.q1) * safe_sqrt(pair.q2) * (1 - pair.t)
        return 4 * self.a**2 * self.b**2 * k * self._determinant(pair)[1] ** -1.5

    def _determinant(self, pair: Pair) -> tuple[Tensor, Tensor]:
        """X = β²(q1·q2 − k²) and D."""
        beta = -2 * self.b
        X = beta**2 * (pair.q1 * pair.q2) * (pair.t * pair.u)
        return X, 1 + beta * (pair.q1 + pair.q2) + X

    def _formula(self) -> Formula:
        return Bump(-2 * self.b, self.a**2)

    def function(self, x: Tensor) -> Tensor:
        """a·exp(b·x²)."""
        return self.a * torch.exp(self.b * x.square())
