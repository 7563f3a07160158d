"""Activations made of two straight lines, and the sign function: arc-cosine kernels of order one and zero.

Any φ(x) = a·min(x, 0) + b·max(x, 0) is ((a + b)/2)·x + ((b − a)/2)·|x|, whose parts do not correlate, so all rest on

    E|uv| = √(q1·q2)·A,   A = (2/π)·(sin θ + c·(π/2 − θ)),   cos θ = c.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gdkl.infinite.activation import Activation, Pair
from gdkl.infinite.arrays import finite_number
from gdkl.infinite.formulas import ArcCosine, Formula


def angle(t: Tensor, u: Tensor) -> Tensor:
    """θ = arccos c from t = 1 − c and u = 1 + c, exact at both ends, where its derivative counts as zero."""
    return _Angle.apply(t, u)  # pyright: ignore[reportReturnType]


def fold(t: Tensor, u: Tensor) -> Tensor:
    """1 − A, the correlation deficit of (|u|, |v|) as second moments: never negative, zero for c = ±1."""
    return _Fold.apply(t, u)  # pyright: ignore[reportReturnType]


class _Angle(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor, u: Tensor) -> Tensor:
        ctx.save_for_backward(t, u)
        # Half-angle: sin²(θ/2) = t/2, cos²(θ/2) = u/2.
        return 2 * torch.atan2(t.clamp_min(0).sqrt(), u.clamp_min(0).sqrt())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        t, u = ctx.saved_tensors
        product = t * u
        positive = product > 0
        # u follows from t, so that t alone carries the gradient.
        return torch.where(positive, torch.where(positive, product, 1).rsqrt(), 0) * grads[0], None


class _Fold(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor, u: Tensor) -> Tensor:
        ctx.save_for_backward(t, u)
        # A is even in c, so the smaller of t and u takes the place of t. The difference sin θ − θ·cos θ is of
        # order θ³ and known to an ulp of θ: what it does to the next layer's angle √(2t') is an ulp too.
        m = torch.minimum(t, u).clamp_min(0)
        theta = 2 * (m / 2).sqrt().asin()
        rest = (m * (2 - m)).sqrt() - theta * (1 - m)
        return (m - (2 / math.pi) * rest).clamp_min(0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        t, u = ctx.saved_tensors
        return (1 - (2 / math.pi) * angle(t, u)) * grads[0], None


class ABReLU(Activation):
    """φ(x) = a·min(x, 0) + b·max(x, 0), with slope a left of zero and slope b right of it.

    Example:
        >>> ABReLU(a=-1.0, b=1.0).kernel(torch.tensor([[2.0], [-2.0]]))
        tensor([[4., 4.],
                [4., 4.]])
    """

    _name, _entries, _wide = "abrelu", ("a", "b"), False

    def __init__(self, a: float, b: float) -> None:
        self.a, self.b = finite_number(a, "a"), finite_number(b, "b")

    @property
    def _parts(self) -> tuple[float, float]:
        """Squared weights of the odd part x and of the even part |x|."""
        return ((self.a + self.b) / 2) ** 2, ((self.b - self.a) / 2) ** 2

    @property
    def two_sided(self) -> bool:
        """Antipodal inputs become parallel where the even part is alone, and stay antipodal where the odd part is."""
        odd, even = self._parts
        return odd < even

    def formula(self, arc_cosine: Callable[[float], ArcCosine]) -> tuple[Formula | None, float]:
        """Even part · (odd/even · k + E|uv|)."""
        odd, even = self._parts
        if even == 0:
            return None, odd
        formula = arc_cosine(odd / even)
        return formula, even * formula.gain

    def variance(self, q: Tensor) -> Tensor:
        """(a² + b²)/2 · q."""
        return q * ((self.a**2 + self.b**2) / 2)

    def deficits(self, pair: Pair) -> tuple[Tensor, Tensor]:
        """Weighted means of the deficits of x and of |x|."""
        odd, even = self._parts
        if even == 0:
            return pair.t, pair.u
        share = even / (odd + even)
        folded = fold(pair.t, pair.u)
        t = pair.t * (1 - share) + folded * share
        u = pair.u * (1 - share) + (2 - folded) * share
        return t, u

    def slope(self, pair: Pair) -> Tensor:
        """E[φ'φ'] = odd part + even part · E[sign(u) sign(v)]."""
        odd, even = self._parts
        if even == 0:
            return torch.full_like(pair.t, odd)
        return (odd + even) - (2 * even / math.pi) * angle(pair.t, pair.u)

    def function(self, x: Tensor) -> Tensor:
        """a·min(x, 0) + b·max(x, 0)."""
        return self.a * x.clamp_max(0) + self.b * x.clamp_min(0)


class ReLU(ABReLU):
    """φ(x) = max(x, 0).

    Example:
        >>> ReLU().kernel(torch.tensor([[2.0], [4.0]]))
        tensor([[2., 4.],
                [4., 8.]])
    """

    _name, _entries = "relu", ()

    def __init__(self) -> None:
        super().__init__(0.0, 1.0)


class LeakyReLU(ABReLU):
    """φ(x) = alpha·min(x, 0) + max(x, 0), with slope alpha left of zero.

    Example:
        >>> LeakyReLU(alpha=0.5).diagonal(torch.tensor([[2.0]]))
        tensor([2.5000])
    """

    _name, _entries = "leaky_relu", ("alpha",)

    def __init__(self, alpha: float = 0.01) -> None:
        self.alpha = finite_number(alpha, "alpha")
        super().__init__(self.alpha, 1.0)


class Abs(ABReLU):
    """φ(x) = |x|.

    Example:
        >>> Abs().diagonal(torch.tensor([[2.0]]))
        tensor([4.])
    """

    _name, _entries = "abs", ()

    def __init__(self) -> None:
        super().__init__(-1.0, 1.0)


class Sign(Activation):
    """φ(x) = sign(x); its derivative counts as zero, so the NTK of what comes before it is lost.

    Example:
        >>> Sign().kernel(torch.tensor([[2.0], [-3.0]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """

    _name, _wide = "sign", False

    def variance(self, q: Tensor) -> Tensor:
        """One, and zero where nothing arrives."""
        return (q > 0).to(q.dtype)

    def deficits(self, pair: Pair) -> tuple[Tensor, Tensor]:
        """1 ∓ (2/π)·arcsin c = (2/π)·(angle to the other, or to its opposite)."""
        return (2 / math.pi) * angle(pair.t, pair.u), (2 / math.pi) * angle(pair.u, pair.t)

    def slope(self, pair: Pair) -> Tensor:
        """Zero by convention."""
        return torch.zeros_like(pair.t)

    def function(self, x: Tensor) -> Tensor:
        """sign(x)."""
        return x.sign()
