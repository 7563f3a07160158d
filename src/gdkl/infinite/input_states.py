"""The state that a network sees first: K = x·x' / d for vectors, and so for the channels of each pixel of images."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from gdkl.infinite.state import Pixels, State, safe_divide
from gdkl.numerics import chunk_slices, rows_per_chunk

#: Below this deficit 1 − x̂·x̂' is replaced by ½|x̂ − x̂'|²: the product is right to about 1e-16 absolutely,
#: which above this line is better than 1e-13 relatively.
NEAR = 2.0**-8
#: Below this one even the rounding of the directions shows, and the angle is found from the inputs
#: themselves.
PARALLEL = 1e-12
#: With so few features the differences cost no more than the product.
FEW_FEATURES = 4
#: Bytes of gathered rows at a time.
GATHER_BUDGET = 32 * 2**20


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

    Rows that are multiples of each other up to rounding have an angle of 1e-17, and a few layers of `Sign`
    make 1e-4 of that: it is worth knowing to all digits.
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
