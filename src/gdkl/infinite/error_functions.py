"""Error functions and the Gaussian error linear unit: arc-sine kernels."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from gdkl.infinite.activation import Activation, Pair
from gdkl.infinite.arrays import finite_number
from gdkl.infinite.formulas import ErrorFunction, ErrorLinear, Formula
from gdkl.infinite.piecewise import angle
from gdkl.infinite.state import State, safe_divide, safe_sqrt
from gdkl.infinite.sums import affine


class Saturated:
    """The pair of squashed units z/√(1 + βq)·√β whose correlation an arc-sine kernel takes.

    Their variances are Q = βq/(1 + βq) < 1, and with S = √(Q1·Q2) their covariance is x = S·c. The complements
    p = 1 − Q, 1 − S, t = 1 − x and u = 1 + x are kept beside them: for large inputs they are all that is left.
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
        a, b = (safe_divide(d, r1 * c + r2 * c1, otherwise=0.0), safe_divide(d, r1 * c2 + r2 * c, otherwise=0.0))
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
    """φ(x) = a·erf(b·x) + c, with height a, steepness b and offset c.

    Example:
        >>> Erf().diagonal(torch.tensor([[0.0], [1e6]]))
        tensor([0.0000, 1.0000])
    """

    _name, _entries, _odd = "erf", ("a", "b", "c"), True

    def __init__(self, a: float = 1.0, b: float = 1.0, c: float = 0.0) -> None:
        self.a, self.b, self.c = finite_number(a, "a"), finite_number(b, "b"), finite_number(c, "c")

    def variance(self, q: Tensor) -> Tensor:
        """(2/π)·arcsin Q of erf(b·x) alone."""
        one_minus_Q = 1 / (1 + 2 * self.b**2 * q)
        return (2 / math.pi) * arcsine(2 * self.b**2 * q * one_minus_Q, one_minus_Q)

    def deficit(self, pair: Pair) -> Tensor:
        """Deficit of erf(b·x) alone, with h = arcsin.

        It is √(h(Q1)·h(Q2)) − h(S), from differing variances, and h(S) − h(S·c), an arcsine without cancellation.
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

    def _formula(self) -> Formula:
        return ErrorFunction(2 * self.b**2, self.a**2 * 2 / math.pi, self.c**2)

    def function(self, x: Tensor) -> Tensor:
        """a·erf(b·x) + c."""
        return self.a * torch.erf(self.b * x) + self.c


class SigmoidLike(Erf):
    """φ(x) = ½·erf(x / 2.402…) + ½, which stays within 0.02 of the logistic function.

    Example:
        >>> SigmoidLike().diagonal(torch.tensor([[0.0], [1e6]]))
        tensor([0.2500, 0.5000])
    """

    _name, _entries = "sigmoid_like", ()

    def __init__(self) -> None:
        super().__init__(0.5, 1 / 2.4020563531719796, 0.5)


class GELU(Activation):
    """φ(x) = x·Φ(x), exact, not its tanh approximation.

    With P = (1 + q1)(1 + q2), D = P − k² and F = E[Φ(u)Φ(v)] = ¼ + arcsin(k/√P)/2π, Stein's identity gives

        E[φ(u)φ(v)] = k·F + (q1·q2·√D + k²/√D) / (2π·P), E[φ'(u)φ'(v)] = F + k·(3 + q1 + q2 + k²/D) / (2π·P·√D).

    Example:
        >>> GELU().diagonal(torch.tensor([[0.0], [1.0]]))
        tensor([0.0000, 0.4252])
    """

    _name = "gelu"

    def variance(self, q: Tensor) -> Tensor:
        """E[φ²], the kernel at k = q1 = q2."""
        p = 1 / (1 + q)
        root = (1 + 2 * q).sqrt()
        half_angle = 2 * (p / 2).sqrt().asin()
        return q * (0.5 - half_angle / (2 * math.pi)) + (q * p).square() * (root + 1 / root) / (2 * math.pi)

    def deficit(self, pair: Pair) -> Tensor:
        """1 − c', split at c = 1: what differing variances cause, and what the angle does."""
        z = Saturated(pair, 1.0)
        s = safe_sqrt(pair.q1) * safe_sqrt(pair.q2)
        scale = safe_sqrt(self.variance(pair.q1)) * safe_sqrt(self.variance(pair.q2))
        p = (z.p1 * z.p2).sqrt()
        root, root_s = z.root / p, z.root_at_parallel / p
        F_s = 0.5 - angle(z.one_minus_S, 1 + z.S) / (2 * math.pi)
        parallel = s * F_s + (s * p).square() * (root_s + 1 / root_s) / (2 * math.pi)
        total = safe_divide(scale + parallel, s, otherwise=1.0)
        close = (pair.q1 - pair.q2).abs() < 0.95 * (pair.q1 + pair.q2)
        across = torch.where(close, s * self._gap(z, pair, F_s) / total, scale - parallel).clamp_min(0)
        # k'(c = 1) − k'(c): products and roots are compared factor by factor, with m = s² − k².
        k = s * (1 - pair.t)
        m = (s * p).square() * (pair.t * pair.u)
        roots = root + root_s
        along = s * pair.t * F_s + k * self._fall(z, pair) / (2 * math.pi)
        along = along + m / (2 * math.pi) * (1 / root_s - s.square() / roots + k.square() / (roots * root * root_s))
        return safe_divide(across + along.clamp_min(0), scale, otherwise=1.0)

    def slope(self, pair: Pair) -> Tensor:
        """E[φ'φ'] as above."""
        z = Saturated(pair, 1.0)
        # With k/√P and √(D/P), which stay in range for the largest inputs.
        quotient = z.S * (1 - pair.t) / z.root
        p = z.p1 * z.p2
        F = 0.5 - angle(z.t, z.u) / (2 * math.pi)
        return F + quotient * p * (3 + pair.q1 + pair.q2 + quotient.square()) / (2 * math.pi)

    @staticmethod
    def _gap(z: Saturated, pair: Pair, F_s: Tensor) -> Tensor:
        """(E[φ²](q1)·E[φ²](q2) − k'(c = 1)²) / (q1·q2), which has the factor (q1 − q2)² throughout.

        E[φ²] = q·F + Q²·R/2π with R = r + 1/r and r = √(1 + 2q); k' has s, F_s, S and R_s in their places,
        with r_s² = 1 + q1 + q2. The mixed terms α = η·F1·R2 and β = F2·R1/η meet 2γ = 2·F_s·R_s by
        α + β − 2γ = (√α − √β)² + 2(√(αβ) − γ).
        """
        some = (pair.q1 > 0) & (pair.q2 > 0)
        q1, q2 = torch.where(some, pair.q1, 1), torch.where(some, pair.q2, 1)
        up, down, A_minus_B = (step / (2 * math.pi) for step in z.arcsine_steps(pair))
        # The larger one first, so that the kernel is symmetric to the last bit.
        turned = q1 < q2
        q1, q2 = torch.where(turned, q2, q1), torch.where(turned, q1, q2)
        A, B = torch.where(turned, -down, up), torch.where(turned, -up, down)
        F1, F2 = F_s + A, F_s - B
        F_gap = F_s * A_minus_B - A * B
        r1, r2, square = (1 + 2 * q1).sqrt(), (1 + 2 * q2).sqrt(), 1 + q1 + q2
        R1, R2 = r1 + 1 / r1, r2 + 1 / r2
        R_s = square.sqrt() + square.rsqrt()
        product, d = r1 * r2, q1 - q2
        # r1²·r2² − r_s⁴ = −d², and r1 − r2 = 2d / (r1 + r2).
        slant = 2 * d / (r1 + r2)
        R_gap = slant.square() / product - d.square() / (product + square) * (1 - 1 / product / square)
        eta = (q2 / q1).sqrt() * ((1 + q1) / (1 + q2))
        eta_gap = (d / (1 + q1) / (1 + q2)) * (q1 * q2 - 1) / (safe_sqrt(q1) * safe_sqrt(q2))
        skew = eta_gap * F1 * R2 + ((A + B) * R2 - F2 * slant * (1 - 1 / product)) / eta
        mean, gamma = (F1 * F2 * R1 * R2).sqrt(), F_s * R_s
        mixed = skew.square() / (eta * F1 * R2 + F2 * R1 / eta + 2 * mean)
        mixed = mixed + 2 * (F_gap * R1 * R2 + F_s.square() * R_gap) / (mean + gamma)
        weight = safe_sqrt(q1) * safe_sqrt(q2) * z.p1 * z.p2 / (2 * math.pi)
        return torch.where(some, F_gap + weight * mixed + weight.square() * R_gap, 0)

    @staticmethod
    def _fall(z: Saturated, pair: Pair) -> Tensor:
        """Arcsine of S less arcsine of S·c, for either sign of c."""
        forward = pair.t <= 1
        down = z.arcsine_fall(Pair(pair.q1, pair.q2, torch.where(forward, pair.t, 1), torch.where(forward, pair.u, 1)))
        across = angle(z.t, z.u) - angle(z.one_minus_S, 1 + z.S)
        return torch.where(forward, down, across)

    def _formula(self) -> Formula:
        return ErrorLinear()

    def function(self, x: Tensor) -> Tensor:
        """x·Φ(x)."""
        return functional.gelu(x)
