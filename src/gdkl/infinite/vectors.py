"""The state that a network sees first when its inputs are vectors: K = x·x' / d."""

from __future__ import annotations

import torch
from torch import Tensor

from gdkl.infinite.state import State, safe_divide
from gdkl.numerics import chunk_slices, rows_per_chunk

#: Below this deficit 1 − x̂·x̂' is replaced by ½|x̂ − x̂'|²: the product is right to about 1e-16 absolutely,
#: which above this line is better than 1e-13 relatively.
NEAR = 2.0**-8
#: With so few features the differences cost no more than the product.
FEW_FEATURES = 4
#: Bytes of gathered rows at a time.
GATHER_BUDGET = 32 * 2**20


def vector_state(
    x1: Tensor, x2: Tensor | None, *, matched: bool, two_sided: bool, ntk: bool, gradient: bool
) -> State:
    """Covariances of vectors: variances |x|²/d, correlations from the directions x̂ = x/|x|.

    Args:
        x1: First set, shape ``(n1, d)``.
        x2: Second set, shape ``(n2, d)``; None for the first set again.
        matched: Pair each row of the first set with the same row of the second alone.
        two_sided: Carry 1 + c beside 1 − c.
        ntk: Start a neural tangent kernel.
        gradient: Carry the covariance for gradients.

    Example:
        >>> x = torch.eye(2, dtype=torch.float64)
        >>> vector_state(x, None, matched=False, two_sided=False, ntk=False, gradient=False).covariance()
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]], dtype=torch.float64)
    """
    dtype, d = x1.dtype, x1.shape[1]
    q1, direction1 = _variance_and_direction(x1)
    q2, direction2 = (q1, direction1) if x2 is None else _variance_and_direction(x2)
    if matched:
        t = (direction1 - direction2).square().sum(-1) / 2
        # A zero row has no direction; its correlation with anything, itself included, counts as zero.
        t = torch.where((q1 > 0) & (q2 > 0), t, 1)
        u = (direction1 + direction2).square().sum(-1) / 2
        u = torch.where((q1 > 0) & (q2 > 0), u, 1)
    else:
        t, u = _deficits(direction1, direction2, two_sided=two_sided)
    k = None
    if gradient:
        other = x1 if x2 is None else x2
        k = ((x1 * other).sum(-1) if matched else x1 @ other.T) / d
    t = t.to(dtype)
    return State(
        q1=q1,
        q2=q2,
        t=t,
        u=u.to(dtype) if two_sided and u is not None else None,
        k=k,
        ntk=torch.zeros_like(t) if ntk else None,
        matched=matched,
    )


def _variance_and_direction(x: Tensor) -> tuple[Tensor, Tensor]:
    """|x|²/d in the input's precision, and x/|x| in float64 without gradient (zero for a zero row)."""
    wide = x.detach().double()
    # The largest entry is taken out first, so that no square leaves the range.
    top = wide.abs().amax(dim=-1, keepdim=True)
    scaled = safe_divide(wide, top, otherwise=0.0)
    direction = safe_divide(scaled, scaled.square().sum(-1, keepdim=True).sqrt(), otherwise=0.0)
    q = x.square().mean(-1) if x.requires_grad else wide.square().mean(-1).to(x.dtype)
    return q, direction


def _deficits(a: Tensor, b: Tensor, *, two_sided: bool) -> tuple[Tensor, Tensor | None]:
    """1 − a·b, and 1 + a·b where asked for, for all pairs of rows of unit or zero length."""
    if a.shape[1] <= FEW_FEATURES:
        zero = (~a.any(dim=1))[:, None] | (~b.any(dim=1))[None, :]
        t = torch.where(zero, 1.0, _half_squares(a, b))
        return t, (torch.where(zero, 1.0, _half_squares(a, -b)) if two_sided else None)
    c = a @ b.T
    t = _refine((1 - c).clamp_(0, 2), a, b)
    return t, (_refine((1 + c).clamp_(0, 2), a, -b) if two_sided else None)


def _half_squares(a: Tensor, b: Tensor) -> Tensor:
    """½|a − b|² for all pairs of rows, feature by feature."""
    total = torch.zeros(a.shape[0], b.shape[0], dtype=a.dtype, device=a.device)
    for feature in range(a.shape[1]):
        difference = a[:, feature, None] - b[None, :, feature]
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
