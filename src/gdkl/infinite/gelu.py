"""The Gaussian error linear unit x·Φ(x)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from gdkl.infinite.activation import Activation, Pair
from gdkl.infinite.erf import Saturated
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
        across = torch.where(pair.q1 == pair.q2, 0, (scale - parallel).clamp_min(0))
        # k'(c = 1) − k'(c): products and roots are compared factor by factor, with m = s² − k².
        k = s * (1 - pair.t)
        m = (s * p).square() * (pair.t * pair.u)
        roots = root + root_s
        along = s * pair.t * F_s + k * self._fall(z, pair) / (2 * math.pi)
        along = along + m / (2 * math.pi) * (
            1 / root_s - s.square() / roots + k.square() / (roots * root * root_s)
        )
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
    def _fall(z: Saturated, pair: Pair) -> Tensor:
        """Arcsine of S less arcsine of S·c, for either sign of c."""
        forward = pair.t <= 1
        down = z.arcsine_fall(
            Pair(pair.q1, pair.q2, torch.where(forward, pair.t, 1), torch.where(forward, pair.u, 1))
        )
        across = angle(z.t, z.u) - angle(z.one_minus_S, 1 + z.S)
        return torch.where(forward, down, across)

    def function(self, x: Tensor) -> Tensor:
        """x·Φ(x)."""
        return functional.gelu(x)

    def _own_spec(self) -> Spec:
        return {"op": "act", "name": "gelu"}
