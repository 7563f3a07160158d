"""The covariance state that flows through an infinite-width network, from K = x·x' / d of its inputs on.

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
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gdkl.numerics import chunk_slices, rows_per_chunk

#: Below this deficit 1 − x̂·x̂' is replaced by ½|x̂ − x̂'|²: the product is right to about 1e-16 absolutely,
#: which above this line is better than 1e-13 relatively.
NEAR = 2.0**-8
#: Below this one even the rounding of the directions shows, and the angle is found from the inputs themselves.
PARALLEL = 1e-12
#: With so few features the differences cost no more than the product.
FEW_FEATURES = 4
#: Bytes of gathered rows at a time.
GATHER_BUDGET = 32 * 2**20


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

    ``q1`` and ``q2`` are variances, ``t`` the correlation deficit 1 − c of each pair (1 where a variance is zero),
    ``u`` 1 + c or None, which stands for 2 − t. ``k`` is the covariance, only where gradients are asked for: they flow
    through it, values through t. ``ntk`` is None where only the NNGP is asked for. ``own1`` and ``own2`` are matched
    pixel pairs of either set with itself, where a pooling ahead needs them.
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

    def variances(self, change: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Both sets' variances behind a map, which is applied once where the sets are one."""
        q1 = change(self.q1)
        return q1, q1 if self.q2 is self.q1 else change(self.q2)

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


def vector_state(x1: Tensor, x2: Tensor | None, *, matched: bool, two_sided: bool, ntk: bool, gradient: bool) -> State:
    """Covariances of vectors: variances |x|²/d, correlations from the directions x̂ = x/|x|."""
    d = x1.shape[1]
    q1, a = variance_and_direction(x1)
    q2, b = (q1, a) if x2 is None else variance_and_direction(x2)
    frame = State(q1, q2, q1, matched=matched)
    t, u = pair_deficits(a, b, frame, two_sided=two_sided)
    other = x1 if x2 is None else x2
    if not matched and d > 1:
        # A single feature has no angles but 0 and π, which come out exactly.
        _sharpen(t, x1.detach(), other.detach())
        if u is not None:
            _sharpen(u, x1.detach(), -other.detach())
    k = None
    if gradient:
        k = ((x1 * other).sum(-1) if matched else x1 @ other.T) / d
    return _started(frame, t, u, k, ntk=ntk)


def _started(frame: State, t: Tensor, u: Tensor | None, k: Tensor | None, *, ntk: bool) -> State:
    t = t.to(frame.q1.dtype)
    ntk0 = torch.zeros_like(t) if ntk else None
    return replace(frame, t=t, u=None if u is None else u.to(t.dtype), k=k, ntk=ntk0)


def variance_and_direction(x: Tensor) -> tuple[Tensor, Tensor]:
    """|x|²/d over the last axis in the input's precision, and x/|x| in float64 (zero for a zero row)."""
    wide = x.detach().double()
    # The largest entry is taken out first, so that no square leaves the range.
    top = wide.abs().amax(dim=-1, keepdim=True)
    scaled = safe_divide(wide, top, otherwise=0.0)
    direction = safe_divide(scaled, scaled.square().sum(-1, keepdim=True).sqrt(), otherwise=0.0)
    q = x.square().mean(-1) if x.requires_grad else wide.square().mean(-1).to(x.dtype)
    return q, direction


def pair_deficits(a: Tensor, b: Tensor, frame: State, *, two_sided: bool) -> tuple[Tensor, Tensor | None]:
    """1 − a·b of each pair of directions (of unit length or zero, features last), and 1 + a·b if asked for."""
    if frame.pixels is Pixels.PAIRS and not frame.matched and a.shape[-1] > FEW_FEATURES:
        near, far = _products(a.flatten(0, -2), b.flatten(0, -2), two_sided=two_sided)
        shape = (*a.shape[:-1], *b.shape[:-1])

        def arrange(array: Tensor) -> Tensor:
            return array.reshape(shape).permute(0, 3, 1, 2, 4, 5).contiguous()

        return arrange(near), None if far is None else arrange(far)
    if frame.pixels is Pixels.NONE and not frame.matched and a.shape[-1] > FEW_FEATURES:
        return _products(a, b, two_sided=two_sided)
    # A zero row has no direction; its correlation with anything, itself included, counts as zero.
    defined = frame.left(a.any(dim=-1)) & frame.right(b.any(dim=-1))
    near = torch.where(defined, _half_squares(a, b, frame), 1.0)
    return near, torch.where(defined, _half_squares(a, -b, frame), 1.0) if two_sided else None


def _products(a: Tensor, b: Tensor, *, two_sided: bool) -> tuple[Tensor, Tensor | None]:
    """1 ∓ a·b by one matrix product, corrected where rows almost agree."""
    c = a @ b.T
    t = _refine((1 - c).clamp_(0, 2), a, b)
    return t, (_refine((1 + c).clamp_(0, 2), a, -b) if two_sided else None)


def _half_squares(a: Tensor, b: Tensor, frame: State) -> Tensor:
    """½|a − b|² of each pair, feature by feature."""
    total = (frame.left(a[..., 0]) - frame.right(b[..., 0])).square_().mul_(0.5)
    for feature in range(1, a.shape[-1]):
        difference = frame.left(a[..., feature]) - frame.right(b[..., feature])
        total.addcmul_(difference, difference, value=0.5)
    return total


def _refine(t: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Replace small deficits by half squared differences, which have no cancellation."""
    near = (t < NEAR).nonzero()
    step = rows_per_chunk(3 * 8 * a.shape[1], GATHER_BUDGET)
    for part in chunk_slices(near.shape[0], step):
        i, j = near[part].unbind(1)
        t[i, j] = (a[i] - b[j]).square_().sum(-1) / 2
    return t


def _sharpen(t: Tensor, x1: Tensor, x2: Tensor) -> None:
    """Replace deficits of all but parallel rows, from the part of one row that is perpendicular to the other.

    An angle of 1e-17 from rounding becomes 1e-4 behind a few layers of `Sign`: it is worth knowing to all digits.
    """
    near = (t < PARALLEL).nonzero()
    for part in chunk_slices(near.shape[0], rows_per_chunk(10 * 8 * x1.shape[1], GATHER_BUDGET)):
        i, j = near[part].unbind(1)
        a, b = _near_one(x1[i].double()), _near_one(x2[j].double())
        square = a.square().sum(-1, keepdim=True)
        factor = (a * b).sum(-1, keepdim=True) / square
        product = factor * a
        # b less the exact product; what the factor's rounding leaves along a is taken off after that.
        rest = (b - product) - _product_error(factor, a, product)
        rest = rest - (rest * a).sum(-1, keepdim=True) / square * a
        sine = rest.square().sum(-1) / b.square().sum(-1)
        t[i, j] = sine / (1 + (1 - sine).clamp_min(0).sqrt())


def _near_one(x: Tensor) -> Tensor:
    """Each row times that power of two, exactly, that brings it near one: no square leaves the range."""
    exponent = -torch.frexp(x.abs().amax(-1, keepdim=True)).exponent
    # In two steps, as the power itself leaves the range for the smallest numbers.
    half = exponent // 2
    return torch.ldexp(torch.ldexp(x, half), exponent - half)


def _product_error(a: Tensor, b: Tensor, product: Tensor) -> Tensor:
    """What rounding has taken from a product of float64 numbers, exactly (Dekker's algorithm)."""
    a_high, b_high = ((2.0**27 + 1) * x - ((2.0**27 + 1) * x - x) for x in (a, b))
    a_low, b_low = a - a_high, b - b_high
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def image_state(
    x1: Tensor, x2: Tensor | None, *, matched: bool, pairs: bool, two_sided: bool, ntk: bool, gradient: bool
) -> State:
    """Covariances of the pixels of images over their channels; ``pairs``: of all pixels with all."""
    # Channels last: pixels are vectors of channels.
    first = x1.permute(0, 2, 3, 1)
    second = first if x2 is None else x2.permute(0, 2, 3, 1)
    q1, a = variance_and_direction(first)
    q2, b = (q1, a) if x2 is None else variance_and_direction(second)
    pixels = Pixels.PAIRS if pairs else Pixels.DIAGONAL
    frame = State(q1, q2, q1, matched=matched, pixels=pixels)
    t, u = pair_deficits(a, b, frame, two_sided=two_sided)
    k = None
    if gradient:
        m, ij = "n" if matched else "m", "ij" if pairs else "hw"
        rows, columns = "n" if matched else "nm", "hwij" if pairs else "hw"
        k = torch.einsum(f"nhwc,{m}{ij}c->{rows}{columns}", first, second) / first.shape[-1]
    state = _started(frame, t, u, k, ntk=ntk)
    if not pairs or (matched and x2 is None):
        return state
    own = partial(image_state, x2=None, matched=True, pairs=True, two_sided=two_sided, ntk=False, gradient=gradient)
    own1 = own(x1)
    return replace(state, own1=own1, own2=own1 if x2 is None else own(x2))
