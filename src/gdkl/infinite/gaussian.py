"""The Gaussian bump."""

from __future__ import annotations

from collections.abc import Callable
import torch
from torch import Tensor

from gdkl.infinite.activation import Activation, Pair
from gdkl.infinite.formulas import ArcCosine, Bump, Formula
from gdkl.infinite.network import Spec
from gdkl.infinite.parameters import finite_number
from gdkl.infinite.state import safe_sqrt
from gdkl.numerics import OptionError


class Gaussian(Activation):
    """φ(x) = a·exp(b·x²).

    With β = −2b the kernel is a² / √D, D = 1 + β(q1 + q2) + β²(q1·q2 − k²).

    Args:
        a: Height.
        b: Curvature, at most zero.

    Example:
        >>> import gdkl.infinite as inf
        >>> inf.Gaussian().diagonal(torch.tensor([[0.0], [2.0]]))
        tensor([1.0000, 0.2425])
    """

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

    def formula(self, arc_cosine: Callable[[float], ArcCosine]) -> tuple[Formula | None, float]:
        """The kernel of the covariance alone."""
        del arc_cosine
        return Bump(-2 * self.b, self.a**2), 1.0

    def function(self, x: Tensor) -> Tensor:
        """a·exp(b·x²)."""
        return self.a * torch.exp(self.b * x.square())

    def _own_spec(self) -> Spec:
        return {"op": "act", "name": "gaussian", "a": self.a, "b": self.b}
