"""Error functions: arc-sine kernels."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gdkl.infinite.activation import Activation, Pair
from gdkl.infinite.affine import affine
from gdkl.infinite.network import Spec, finite_number
from gdkl.infinite.state import State, safe_divide, safe_sqrt


class Saturated:
    """The pair of squashed units z/√(1 + βq)·√β whose correlation an arc-sine kernel takes.

    Their variances are Q = βq/(1 + βq) < 1, and with S = √(Q1·Q2) their covariance is x = S·c. The
    complements p = 1 − Q = 1/(1 + βq), 1 − S, t = 1 − x and u = 1 + x are kept beside them, since for large
    inputs they are all that is left.

    Args:
        pair: The units themselves.
        beta: The factor β.
    """

    def __init__(self, pair: Pair, beta: float) -> None:
        self.p1, self.p2 = 1 / (1 + beta * pair.q1), 1 / (1 + beta * pair.q2)
        self.Q1, self.Q2 = beta * pair.q1 * self.p1, beta * pair.q2 * self.p2
        self.S = safe_sqrt(self.Q1) * safe_sqrt(self.Q2)
        self.one_minus_S = (self.p1 + self.p2 - self.p1 * self.p2) / (1 + self.S)
        self.t = self.one_minus_S + self.S * pair.t
        self.u = self.one_minus_S + self.S * pair.u
        self.root = (self.t * self.u).sqrt()

    def arcsine_fall(self, pair: Pair) -> Tensor:
        """Arcsine of S less arcsine of S·c, for c ≥ 0 by sin(α − β) = (sin²α − sin²β) / sin(α + β)."""
        quotient = self.S * pair.t * pair.u / (self.root + (1 - pair.t) * self.root_at_parallel)
        return quotient.clamp(-1, 1).asin()

    @property
    def root_at_parallel(self) -> Tensor:
        """√(1 − S²)."""
        return (self.one_minus_S * (1 + self.S)).sqrt()


def arcsine(x: Tensor, one_minus_x: Tensor) -> Tensor:
    """Arcsine of x in [0, 1), from 1 − x where x is near one.

    Example:
        >>> arcsine(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]))
        tensor([0.0000, 1.5708])
    """
    low = x < 0.5
    near_one = math.pi / 2 - 2 * torch.where(low, 0.5, one_minus_x / 2).sqrt().asin()
    return torch.where(low, torch.where(low, x, 0).asin(), near_one)


class Erf(Activation):
    """φ(x) = a·erf(b·x) + c.

    Args:
        a: Height.
        b: Steepness.
        c: Offset.

    Example:
        >>> import gdkl.infinite as inf
        >>> inf.Erf().diagonal(torch.tensor([[0.0], [1e6]]))
        tensor([0.0000, 1.0000])
    """

    _odd = True

    def __init__(self, a: float = 1.0, b: float = 1.0, c: float = 0.0) -> None:
        self.a = finite_number(a, "a")
        self.b = finite_number(b, "b")
        self.c = finite_number(c, "c")

    def variance(self, q: Tensor) -> Tensor:
        """(2/π)·arcsin Q of erf(b·x) alone."""
        one_minus_Q = 1 / (1 + 2 * self.b**2 * q)
        return (2 / math.pi) * arcsine(2 * self.b**2 * q * one_minus_Q, one_minus_Q)

    def deficit(self, pair: Pair) -> Tensor:
        """Deficit of erf(b·x) alone.

        With h = arcsin it has two parts: √(h(Q1)·h(Q2)) − h(S), which differing variances cause, and
        h(S) − h(S·c), the arcsine of a quotient without cancellation.
        """
        z = Saturated(pair, 2 * self.b**2)
        h1, h2 = arcsine(z.Q1, z.p1), arcsine(z.Q2, z.p2)
        scale = safe_sqrt(h1) * safe_sqrt(h2)
        across = torch.where(z.Q1 == z.Q2, 0, (scale - arcsine(z.S, z.one_minus_S)).clamp_min(0))
        return safe_divide(across + z.arcsine_fall(pair), scale, otherwise=1.0)

    def slope(self, pair: Pair) -> Tensor:
        """(4/π)·a²b² / √((1 + 2b²q1)(1 + 2b²q2) − 4b⁴k²)."""
        z = Saturated(pair, 2 * self.b**2)
        return (4 / math.pi) * self.a**2 * self.b**2 * (z.p1 * z.p2).sqrt() / z.root

    def _propagate(self, state: State) -> State:
        # The slope above has a² in it already: the NTK takes no part in the scaling.
        return affine(super()._propagate(state), self.a**2, self.c**2)

    def function(self, x: Tensor) -> Tensor:
        """a·erf(b·x) + c."""
        return self.a * torch.erf(self.b * x) + self.c

    def _own_spec(self) -> Spec:
        return {"op": "act", "name": "erf", "a": self.a, "b": self.b, "c": self.c}


class SigmoidLike(Erf):
    """φ(x) = ½·erf(x / 2.402…) + ½, which stays within 0.02 of the logistic function.

    Example:
        >>> import gdkl.infinite as inf
        >>> inf.SigmoidLike().diagonal(torch.tensor([[0.0], [1e6]]))
        tensor([0.2500, 0.5000])
    """

    def __init__(self) -> None:
        super().__init__(0.5, 1 / 2.4020563531719796, 0.5)

    def _own_spec(self) -> Spec:
        return {"op": "act", "name": "sigmoid_like"}
