"""The Gaussian error linear unit x·Φ(x)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from gdkl.infinite.activation import Activation, Pair
from gdkl.infinite.erf import Saturated
from gdkl.infinite.formulas import ArcCosine, ErrorLinear, Formula
from gdkl.infinite.network import Spec
from gdkl.infinite.piecewise import angle
from gdkl.infinite.state import safe_divide, safe_sqrt


class GELU(Activation):
    """φ(x) = x·Φ(x), exact, not its tanh approximation.

    With P = (1 + q1)(1 + q2), D = P − k² and F = E[Φ(u)Φ(v)] = ¼ + arcsin(k/√P)/2π, Stein's identity gives

        E[φ(u)φ(v)] = k·F + (q1·q2·√D + k²/√D) / (2π·P),
        E[φ'(u)φ'(v)] = F + k·(3 + q1 + q2 + k²/D) / (2π·P·√D).

    Example:
        >>> import gdkl.infinite as inf
        >>> inf.GELU().diagonal(torch.tensor([[0.0], [1.0]]))
        tensor([0.0000, 0.4252])
    """

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

    def formula(self, arc_cosine: Callable[[float], ArcCosine]) -> tuple[Formula | None, float]:
        """The kernel of the covariance alone."""
        del arc_cosine
        return ErrorLinear(), 1.0

    def function(self, x: Tensor) -> Tensor:
        """x·Φ(x)."""
        return functional.gelu(x)

    def _own_spec(self) -> Spec:
        return {"op": "act", "name": "gelu"}
