"""The split posterior of an RBF deep kernel as one differentiable step: what guided training spends its time on.

`leading_rbf` followed by `condition` gives the same. Written as one function there is one graph node instead of a
dozen, gradients of size n/2 x n are made in place, and products and solves run in the orientation that is fastest.
Symbols as in `conditioning`: C = K₁₁ + σ²I = LLᵀ, A = L⁻¹K₁₂, α = C⁻¹y, W = C⁻¹K₁₂.

K₁₁ and K₁₂ lie side by side in one block of shape ``(..., n1, n1 + n2)``. On a CPU each member of a batch is computed
on its own: the matrices of one stay in the cache from one operation to the next, those of ten do not, and members can
be shared by threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gdkl.gp.conditioning import RELATIVE_VARIANCE_FLOOR, Marginals, add_noise
from gdkl.gp.rbf import pull_towards, rbf_block, sum_to
from gdkl.numerics import cholesky, for_each

#: Rows of a block in a product of which only the lower half is wanted: of one thread, and of several, which share few
#: large products better than many small ones.
_BLOCK, _SHARED_BLOCK = 64, 128

#: From this many observed rows on, members are computed one by one on a CPU: below it calls cost more than arithmetic.
_ROWS_APART = 64


class _Conditioned(NamedTuple):
    """A posterior and what its gradient needs: the marginals, L, A and v = L⁻¹y."""

    mean: Tensor
    variance: Tensor
    L: Tensor
    A: Tensor
    v: Tensor


def _condition_block(K: Tensor, k22: Tensor, y1: Tensor, noise: Tensor, name: str) -> _Conditioned:
    """Marginals before their floor, from the block ``(..., n1, n1 + n2)``, which is left as it was. No gradients."""
    L = _noisy_factor(K[..., : y1.shape[-1]], noise, name)
    n1 = y1.shape[-1]
    A = _solve(L, K[..., n1:].expand(*L.shape[:-2], -1, -1))
    v = torch.linalg.solve_triangular(L, y1.unsqueeze(-1), upper=False)
    variance = k22 - A.square().sum(dim=-2)
    return _Conditioned((v.mT @ A).squeeze(-2), variance, L, A, v)


def _noisy_factor(K11: Tensor, noise: Tensor, name: str) -> Tensor:
    """L of K₁₁ + σ²I. The noise is on the diagonal for as long as it takes, where that saves a copy of the matrix."""
    if K11.shape[:-2] != noise.shape:
        return cholesky(add_noise(K11, noise), name=name)
    diagonal = K11.diagonal(dim1=-2, dim2=-1)
    before = diagonal.clone()
    diagonal.add_(noise.unsqueeze(-1))
    try:
        return cholesky(K11, name=name)
    finally:
        diagonal.copy_(before)


def _solve(L: Tensor, B: Tensor, *, transposed: bool = False) -> Tensor:
    """L⁻¹B, or L⁻ᵀB, for wide B.

    One thread takes a quarter less time for rows in their order, from the right; several threads far more.
    """
    T = L.mT if transposed else L
    if B.device.type == "cpu" and torch.get_num_threads() == 1:
        return torch.linalg.solve_triangular(T.mT, B.mT, upper=not transposed, left=False).mT
    return torch.linalg.solve_triangular(T, B, upper=transposed)


def members_apart(rows: Tensor, n1: int) -> bool:
    """Whether the members of a batch are better computed one by one than in batched operations."""
    return rows.device.type == "cpu" and n1 >= _ROWS_APART


def condition_block(K: Tensor, k22: Tensor, y1: Tensor, noise: Tensor, *, name: str) -> Marginals:
    """`condition` without gradients, of a block with K₁₂ to the right of K₁₁; the block is written to meanwhile.

    Args:
        K: Kernel of the observed rows with observed, then held-out, rows, shape ``(..., n1, n1 + n2)``.
        k22: Prior variances of the held-out rows, shape ``(..., n2)``.
        y1: Observed targets, shape ``(..., n1)``.
        noise: Noise variances, shape ``(...)``.
        name: What the matrix K₁₁ + σ²I is, for numerical errors.

    Example:
        >>> one = torch.ones(1, dtype=torch.float64)
        >>> q = condition_block(one.repeat(1, 2), one, 3 * one, torch.tensor(0.5, dtype=torch.float64), name="K")
        >>> print(round(q.mean.item(), 4), round(q.variance.item(), 4))
        2.0 0.3333
    """
    with torch.no_grad():
        mean, variance, *_ = _condition_block(K, k22, y1, noise, name)
        return Marginals(mean, torch.maximum(variance, RELATIVE_VARIANCE_FLOOR * k22))


class KeptPosterior(NamedTuple):
    """What the gradient of a member, or of all at once, needs from the forward pass."""

    extended: Tensor
    lengthscale: Tensor
    scale: Tensor
    K: Tensor
    L: Tensor
    A: Tensor
    v: Tensor
    above_floor: Tensor


def split_posterior_forward(
    x: Tensor, y1: Tensor, lengthscale: Tensor, scale: Tensor, noise: Tensor, *, name: str
) -> tuple[Marginals, KeptPosterior]:
    """The posterior of `rbf_split_posterior` and what its gradient needs, without autograd; members may be left out."""
    extended, K = rbf_block(x, y1.shape[-1], lengthscale, scale)
    prior = scale.unsqueeze(-1)
    mean, variance, L, A, v = _condition_block(K, prior, y1, noise, name)
    floor = RELATIVE_VARIANCE_FLOOR * prior
    kept = KeptPosterior(extended, lengthscale, scale, K, L, A, v, variance > floor)
    return Marginals(mean, torch.maximum(variance, floor)), kept


def split_posterior_backward(kept: KeptPosterior, of_mean: Tensor, of_variance: Tensor) -> tuple[Tensor, ...]:
    """Gradients by features, lengthscale, scale and noise."""
    # With g and h the gradients of means and reductions (minus that of variances):
    #   G₁₂ = 2W diag(h) + αgᵀ,   G₁₁ = −W diag(h) Wᵀ − (Wg)αᵀ,   and P = G∘K as in `_LeadingRBF`.
    # K₁₁ is symmetric, so only the symmetric part of G₁₁ has a meaning.
    extended, lengthscale, scale, K, L, A, v, above_floor = kept
    n1 = L.shape[-1]
    g, of_variance = of_mean.unsqueeze(-2), of_variance * above_floor
    W = _solve(L, A, transposed=True)
    alpha = torch.linalg.solve_triangular(L.mT, v, upper=True)
    doubled = W * (-2 * of_variance).unsqueeze(-2)
    G = torch.empty_like(K)
    _lower_product(W, doubled.mT, out=G[..., :n1]).addcmul_(W @ g.mT, alpha.mT, value=-1)
    torch.addcmul(doubled, alpha, g, out=G[..., n1:])
    grad_noise = G[..., :n1].diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    pull, total = pull_towards(extended, G.mul_(K))
    inverse_square = lengthscale.pow(-2)
    # S is a quadratic form: twice ΣP∘S is the inner product of its derivative with the rows.
    sum_PS = (pull * extended[..., :-2]).sum(dim=(-2, -1), keepdim=True)
    grad_lengthscale = sum_to(-(sum_PS * inverse_square) / lengthscale, lengthscale.shape)
    grad_scale = total / scale + of_variance.sum(dim=-1)
    grad_x = sum_to(pull * inverse_square, torch.Size([*extended.shape[:-1], extended.shape[-1] - 2]))
    return grad_x, grad_lengthscale, grad_scale, grad_noise


class _SplitPosterior(Function):
    """See `rbf_split_posterior`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y1: Tensor, lengthscale: Tensor, scale: Tensor, noise: Tensor, name: str
    ) -> tuple[Tensor, Tensor]:
        inputs = (x, y1, lengthscale, scale, noise)
        ctx.apart = x.dim() == 4 and (len(x) == 1 or members_apart(x, y1.shape[-1]))
        # One output is no batch either: plain matrix products are called faster than batched ones.
        ctx.alone = ctx.apart and scale.shape[-1] == 1
        if ctx.apart:
            parts = for_each(len(x), lambda index: split_posterior_forward(*_pick(inputs, index, ctx.alone), name=name))
            q = Marginals(*_join([part[0] for part in parts], ctx.alone))
        else:
            parts = [split_posterior_forward(*inputs, name=name)]
            q = parts[0][0]
        ctx.save_for_backward(*(value for _, kept in parts for value in kept))
        return q

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        saved, size = cast("tuple[Tensor, ...]", ctx.saved_tensors), len(KeptPosterior._fields)
        kept = [KeptPosterior(*saved[start : start + size]) for start in range(0, len(saved), size)]
        if ctx.apart:
            alone = ctx.alone
            parts = for_each(
                len(kept), lambda index: split_posterior_backward(kept[index], *_pick(gradients, index, alone))
            )
            grad_x, *others = _join(parts, ctx.alone)
        else:
            grad_x, *others = split_posterior_backward(kept[0], *gradients)
        return grad_x, None, *others, None


def _pick(values: Sequence[Tensor], member: int, alone: bool) -> list[Tensor]:
    """A member's part of each tensor, without the dimension of outputs where there is one alone."""
    return [value[member, 0] if alone else value[member] for value in values]


def _join(parts: Sequence[Sequence[Tensor]], alone: bool) -> list[Tensor]:
    """The members' parts as tensors again."""
    joined = [
        values[0].unsqueeze(0) if len(values) == 1 else torch.stack(values) for values in zip(*parts, strict=True)
    ]
    return [value.unsqueeze(1) for value in joined] if alone else joined


def _lower_product(W: Tensor, B: Tensor, *, out: Tensor) -> Tensor:
    """A matrix with the symmetric part of −½WB, WB symmetric: lower blocks at full weight, upper ones zero.

    Leaves out the upper blocks' work on a CPU; blocks are large enough to multiply at full speed.
    """
    n = W.shape[-2]
    if W.is_cuda:
        # There a launch costs more than the half that is left out: one product, of which both halves have a part.
        return torch.matmul(W, B, out=out).mul_(-0.5)
    blocks = max(1, round(n / (_BLOCK if torch.get_num_threads() == 1 else _SHARED_BLOCK)))
    edges = [n * index // blocks for index in range(blocks + 1)]
    for start, end in pairwise(edges):
        rows = out[..., start:end, :]
        torch.matmul(W[..., start:end, :], B[..., :end], out=rows[..., :end])
        rows[..., :start].neg_()
        rows[..., start:end].mul_(-0.5)
        rows[..., end:] = 0
    return out


def rbf_split_posterior(
    x: Tensor, y1: Tensor, lengthscale: Tensor, scale: Tensor, noise: Tensor, *, name: str
) -> Marginals:
    """Latent marginals on the later rows given noisy targets on the first, under a scaled RBF.

    Args:
        x: Features, the observed rows first, shape ``(members, 1, n1 + n2, p)``.
        y1: Observed targets, shape ``(members, outputs, n1)``; no gradient flows to them.
        lengthscale: Shape ``(members, outputs, 1, 1)``.
        scale: Output scale, shape ``(members, outputs)``.
        noise: Noise variances, shape ``(members, outputs)``.
        name: What the matrix K₁₁ + σ²I is, for numerical errors.

    Returns:
        Marginals without noise, shape ``(members, outputs, n2)``.

    Example:
        >>> x, one = torch.zeros(1, 1, 2, 3, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
        >>> q = rbf_split_posterior(x, 3 * one[..., None], one[..., None, None], one, 0.5 * one, name="an example")
        >>> print(round(q.mean.item(), 4), round(q.variance.item(), 4))
        2.0 0.3333
    """
    return Marginals(*cast("tuple[Tensor, Tensor]", _SplitPosterior.apply(x, y1, lengthscale, scale, noise, name)))
