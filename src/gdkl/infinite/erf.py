"""Error functions: arc-sine kernels."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gdkl.infinite.activation import Activation, Pair
from gdkl.infinite.formulas import ArcCosine, ErrorFunction, Formula
from gdkl.infinite.network import Spec
from gdkl.infinite.parameters import finite_number
from gdkl.infinite.state import State, safe_divide, safe_sqrt
from gdkl.infinite.sums import affine


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
        self.beta = beta
        self.p1, self.p2 = 1 / (1 + beta * pair.q1), 1 / (1 + beta * pair.q2)
        self.Q1, self.Q2 = beta * pair.q1 * self.p1, beta * pair.q2 * self.p2
        self.S = safe_sqrt(self.Q1) * safe_sqrt(self.Q2)
        self.one_minus_S = (self.p1 + self.p2 - self.p1 * self.p2) / (1 + self.S)
        self.t = self.one_minus_S + self.S * pair.t
        self.u = self.one_minus_S + self.S * pair.u
        self.root = (self.t * self.u).sqrt()
        #: Where the variances are so close that differences of functions of them would lose digits.
        self.close = (self.Q1 - self.Q2).abs() < (self.Q1 + self.Q2) / 8

    def arcsine_fall(self, pair: Pair) -> Tensor:
        """Arcsine of S less arcsine of S·c, for c ≥ 0 by sin(α − β) = (sin²α − sin²β) / sin(α + β)."""
        quotient = self.S * pair.t * pair.u / (self.root + (1 - pair.t) * self.root_at_parallel)
        return quotient.clamp(-1, 1).asin()

    def arcsine_steps(self, pair: Pair) -> tuple[Tensor, Tensor, Tensor]:
        """A = arcsin Q1 − arcsin S, B = arcsin S − arcsin Q2 and A − B, each without cancellation.

        With cosines C = √(1 − Q²) and d = Q1 − Q2, and S² = Q1·Q2,

            sin A = √Q1·d / (√Q1·C_S + √Q2·C1),   sin B = √Q2·d / (√Q1·C2 + √Q2·C_S),

        whose difference has the factor d² and only positive terms beside it.
        """
        r1, r2 = safe_sqrt(self.Q1), safe_sqrt(self.Q2)
        c1, c2 = (self.p1 * (1 + self.Q1)).sqrt(), (self.p2 * (1 + self.Q2)).sqrt()
        c = self.root_at_parallel
        d = self.beta * (pair.q1 - pair.q2) * self.p1 * self.p2
        a, b = (
            safe_divide(d, r1 * c + r2 * c1, otherwise=0.0),
            safe_divide(d, r1 * c2 + r2 * c, otherwise=0.0),
        )
        sin_A, sin_B = (r1 * a).clamp(-1, 1), (r2 * b).clamp(-1, 1)
        difference = a * b * safe_divide(self.Q1 + self.Q2, self.Q1 * c2 + self.Q2 * c1, otherwise=0.0)
        # sin(A − B) = (sin²A − sin²B) / (sin A·cos B + cos A·sin B), where A and B have one sign.
        cos_A, cos_B = (1 - sin_A.square()).sqrt(), (1 - sin_B.square()).sqrt()
        sines = sin_A.abs() + sin_B.abs()
        turned = sin_A.abs() * cos_B + sin_B.abs() * cos_A
        A_minus_B = (difference * safe_divide(sines, turned, otherwise=1.0)).clamp(-1, 1).asin()
        return sin_A.asin(), sin_B.asin(), A_minus_B

    @property
    def root_at_parallel(self) -> Tensor:
        """√(1 − S²)."""
        return (self.one_minus_S * (1 + self.S)).sqrt()


def arcsine(x: Tensor, one_minus_x: Tensor) -> Tensor:
    """Arcsine of x in [0, 1), from 1 − x where x is near one."""
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
        hS = arcsine(z.S, z.one_minus_S)
        # h(Q1)·h(Q2) − h(S)², with h(Q1) = h(S) + A and h(Q2) = h(S) − B.
        A, B, A_minus_B = z.arcsine_steps(pair)
        close = safe_divide(hS * A_minus_B - A * B, scale + hS, otherwise=0.0)
        across = torch.where(z.close, close, scale - hS).clamp_min(0)
        return safe_divide(across + z.arcsine_fall(pair), scale, otherwise=1.0)

    def slope(self, pair: Pair) -> Tensor:
        """(4/π)·a²b² / √((1 + 2b²q1)(1 + 2b²q2) − 4b⁴k²)."""
        z = Saturated(pair, 2 * self.b**2)
        return (4 / math.pi) * self.a**2 * self.b**2 * (z.p1 * z.p2).sqrt() / z.root

    def propagate(self, state: State) -> State:
        """The precise state behind the activation."""
        # The slope above has a² in it already: the NTK takes no part in the scaling.
        return affine(super().propagate(state), self.a**2, self.c**2)

    def formula(self, arc_cosine: Callable[[float], ArcCosine]) -> tuple[Formula | None, float]:
        """The kernel of the covariance alone."""
        del arc_cosine
        return ErrorFunction(2 * self.b**2, self.a**2 * 2 / math.pi, self.c**2), 1.0

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
