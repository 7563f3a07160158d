"""The covariance state that flows through an infinite-width network.

For two inputs a layer sees jointly Gaussian pre-activations with variances q1, q2 and covariance k. What is carried is
the correlation deficit t = 1 − c, c = k / √(q1·q2), and not k: nearly parallel inputs have t near zero, where
1 − k/√(q1·q2) would have lost half of its digits or all of them, and with them the angle √(2t) that ReLU's derivative
and the sign function depend on. Every layer maps t to its successor without cancellation; k = √(q1·q2)·(1 − t) is then
as exact as it can be.

For antipodal inputs u = 1 + c plays the same part. It is carried only where it makes a difference (``u`` is None
otherwise, and stands for 2 − t).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor


def safe_sqrt(q: Tensor) -> Tensor:
    """Square root whose derivative at zero is zero, not infinite."""
    if not q.requires_grad:
        return q.clamp_min(0).sqrt()
    positive = q > 0
    return torch.where(positive, torch.where(positive, q, 1).sqrt(), 0)


def safe_divide(numerator: Tensor, denominator: Tensor, otherwise: float) -> Tensor:
    """A quotient that is a constant, with zero gradient, where the denominator is zero."""
    positive = denominator > 0
    return torch.where(positive, numerator / torch.where(positive, denominator, 1), otherwise)


def diagonal_pixels(array: Tensor) -> Tensor:
    """The pairs of a pixel with itself, out of all pairs, shape ``(..., H, W, H, W)``."""
    return array.diagonal(dim1=-4, dim2=-2).diagonal(dim1=-3, dim2=-2)


class Pixels(Enum):
    """Which pixels of two images are paired."""

    NONE = "vectors have none"
    DIAGONAL = "each pixel with the same pixel of the other image"
    PAIRS = "each pixel with every pixel of the other image"


@dataclass(frozen=True)
class State:
    """Covariances between two sets of inputs at one depth of the network.

    Arrays of one input have shape ``(n,)`` for vectors and ``(n, H, W)`` for images. Arrays of a pair of inputs have
    ``(n1, n2)``, ``(n1, n2, H, W)``, or ``(n1, n2, H, W, H, W)`` where every pixel meets every other; with ``matched``
    they have a single ``n``: then row i of the first set meets row i of the second alone.

    Attributes:
        q1: Variances of the first set.
        q2: Variances of the second set.
        t: Correlation deficit 1 − c of each pair; 1 where a variance is zero.
        u: 1 + c of each pair, or None, which stands for 2 − t.
        k: The covariance itself, only where gradients are asked for: they flow through it, values through t.
        ntk: Neural tangent kernel of each pair, or None where only the NNGP is asked for.
        matched: Whether pairs are (i, i) alone.
        pixels: Which pixels are paired.
        own1: Matched pixel pairs of the first set with itself, where a pooling ahead needs them.
        own2: The same of the second set.
    """

    q1: Tensor
    q2: Tensor
    t: Tensor
    u: Tensor | None = None
    k: Tensor | None = None
    ntk: Tensor | None = None
    matched: bool = False
    pixels: Pixels = Pixels.NONE
    own1: State | None = None
    own2: State | None = None

    def left(self, array: Tensor) -> Tensor:
        """View of an array of the first set that broadcasts against arrays of pairs."""
        if self.pixels is Pixels.PAIRS:
            array = array[..., None, None]
        return array if self.matched else array[:, None]

    def right(self, array: Tensor) -> Tensor:
        """View of an array of the second set that broadcasts against arrays of pairs."""
        if self.pixels is Pixels.PAIRS:
            array = array[:, None, None]
        return array if self.matched else array[None, :]

    def deviations(self) -> tuple[Tensor, Tensor]:
        """√q1 and √q2, shaped to broadcast against arrays of pairs."""
        return self.left(safe_sqrt(self.q1)), self.right(safe_sqrt(self.q2))

    def other_side(self) -> Tensor:
        """1 + c, from ``u`` where it is carried."""
        return (2 - self.t).clamp_min(0) if self.u is None else self.u

    def covariance(self) -> Tensor:
        """The covariance k of each pair."""
        if self.k is not None:
            return self.k
        r1, r2 = self.deviations()
        return r1 * r2 * (1 - self.t)

    def with_gradient(self) -> State:
        """The same state with a ``t`` whose derivative is that of 1 − k/√(q1·q2), which needs no care."""
        if self.k is None:
            return self
        r1, r2 = self.deviations()
        plain = 1 - safe_divide(self.k, r1 * r2, otherwise=0.0)
        change = plain - plain.detach()
        u = None if self.u is None else self.u.detach() - change
        return replace(self, t=self.t.detach() + change, u=u)

    def map_pairs(self, change: Callable[[Tensor], Tensor], **other: Any) -> State:
        """A state with one linear map applied to t, u, k and the NTK alike, and other fields replaced."""
        arrays = {
            name: None if (array := getattr(self, name)) is None else change(array) for name in ("t", "u", "k", "ntk")
        }
        return replace(self, **arrays, **other)

    def same_pixels(self) -> State:
        """Only the pairs of a pixel with itself, out of all pairs of pixels."""
        if self.pixels is not Pixels.PAIRS:
            return self
        return self.map_pairs(
            lambda array: diagonal_pixels(array).contiguous(), pixels=Pixels.DIAGONAL, own1=None, own2=None
        )
