"""The split posterior of an RBF deep kernel as one differentiable step: what guided training spends its time on.

`leading_rbf` followed by `condition` gives the same. Written as one function there is one graph node instead of a
dozen, gradients of size n x n/2 are made in place, and narrow products run in the orientation that is twice as fast.
Symbols as in `conditioning`: C = K₁₁ + σ²I = LLᵀ, A = L⁻¹K₁₂, α = C⁻¹y, W = C⁻¹K₁₂.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gdkl.gp.conditioning import RELATIVE_VARIANCE_FLOOR, Marginals, add_noise
from gdkl.gp.rbf import half_distances, pull_towards, sum_to
from gdkl.numerics import cholesky

#: Rows of a block in a product of which only the lower half is wanted.
_BLOCK = 128


class _SplitPosterior(Function):
    """See `rbf_split_posterior`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y1: Tensor, lengthscale: Tensor, scale: Tensor, noise: Tensor, name: str
    ) -> tuple[Tensor, Tensor]:
        n1 = y1.shape[-1]
        a, S = half_distances(x, n1)
        K = (S * lengthscale.pow(-2)).exp_().mul_(scale[..., None, None])
        L = cholesky(add_noise(K[..., :n1, :], noise), name=name)
        # K₁₂ as the transpose of rows is in the order that the solver wants: nothing is copied to and fro.
        A = torch.linalg.solve_triangular(L, K[..., n1:, :].mT, upper=False)
        v = torch.linalg.solve_triangular(L, y1.unsqueeze(-1), upper=False)
        prior = scale.unsqueeze(-1)
        variance = prior - A.mT.square().sum(dim=-1)
        floor = RELATIVE_VARIANCE_FLOOR * prior
        ctx.save_for_backward(a, lengthscale, scale, K, L, A, v, variance > floor)
        return (A.mT @ v).squeeze(-1), torch.maximum(variance, floor)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        # With g and h the gradients of means and reductions (minus that of variances):
        #   G₂₁ = 2 diag(h)Wᵀ + gαᵀ,   G₁₁ = −W diag(h) Wᵀ − (Wg)αᵀ,   and P = G∘K as in `_LeadingRBF`.
        # K₁₁ is symmetric, so only the symmetric part of G₁₁ has a meaning.
        a, lengthscale, scale, K, L, A, v, above_floor = cast("tuple[Tensor, ...]", ctx.saved_tensors)
        g, of_variance = gradients[0].unsqueeze(-1), gradients[1] * above_floor
        n1 = L.shape[-1]
        W = torch.linalg.solve_triangular(L.mT, A, upper=True)
        alpha = torch.linalg.solve_triangular(L.mT, v, upper=True)
        weighted = W.mT * of_variance.unsqueeze(-1)  # −diag(h)Wᵀ
        G = torch.empty_like(K)
        _lower_product(W, weighted, out=G[..., :n1, :]).addcmul_(W @ g, alpha.mT, value=-1)
        torch.mul(weighted, -2, out=G[..., n1:, :]).addcmul_(g, alpha.mT)
        grad_noise = G[..., :n1, :].diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        pull, total = pull_towards(a, G.mul_(K))
        sum_PS = 0.5 * (pull * a).sum(dim=(-2, -1), keepdim=True)
        grad_lengthscale = sum_to(-2 * sum_PS * lengthscale.pow(-3), lengthscale.shape)
        grad_scale = sum_to(total / scale + of_variance.sum(dim=-1), scale.shape)
        return sum_to(pull * lengthscale.pow(-2), a.shape), None, grad_lengthscale, grad_scale, grad_noise, None


def _lower_product(W: Tensor, B: Tensor, *, out: Tensor) -> Tensor:
    """A matrix with the symmetric part of the product WB, which must be symmetric: lower blocks twice, upper ones zero.

    Leaves out the upper blocks' work; blocks are large enough to multiply at full speed.
    """
    n = W.shape[-2]
    blocks = max(1, round(n / _BLOCK))
    edges = [n * index // blocks for index in range(blocks + 1)]
    for start, end in pairwise(edges):
        rows = out[..., start:end, :]
        rows[..., :end] = W[..., start:end, :] @ B[..., :end]
        rows[..., :start] *= 2
        rows[..., end:] = 0
    return out


def rbf_split_posterior(
    x: Tensor, y1: Tensor, lengthscale: Tensor, scale: Tensor, noise: Tensor, *, name: str
) -> Marginals:
    """Latent marginals on the later rows given noisy targets on the first, under a scaled RBF.

    Args:
        x: Features, the observed rows first, shape ``(..., 1, n1 + n2, p)``.
        y1: Observed targets, shape ``(..., outputs, n1)``; no gradient flows to them.
        lengthscale: Shape ``(..., outputs, 1, 1)``.
        scale: Output scale, shape ``(..., outputs)``.
        noise: Noise variances, shape ``(..., outputs)``.
        name: What the matrix K₁₁ + σ²I is, for numerical errors.

    Returns:
        Marginals without noise, shape ``(..., outputs, n2)``.

    Example:
        >>> x, one = torch.zeros(1, 2, 3, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
        >>> q = rbf_split_posterior(x, 3 * one[:, None], one[:, None, None], one, 0.5 * one, name="an example")
        >>> print(round(q.mean.item(), 4), round(q.variance.item(), 4))
        2.0 0.3333
    """
    return Marginals(*cast("tuple[Tensor, Tensor]", _SplitPosterior.apply(x, y1, lengthscale, scale, noise, name)))
