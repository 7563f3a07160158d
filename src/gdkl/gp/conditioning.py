"""Conditioning and evidence with gradients written out: no autograd through a Cholesky factorisation.

Autograd differentiates a factorisation and a triangular solve by several more solves of the same size. The
derivatives of what is wanted, a posterior's marginals and an evidence, are short products of things that the forward
pass already has. Symbols: C = K + σ²I = LLᵀ, A = L⁻¹K₁₂, v = L⁻¹y, α = C⁻¹y, W = C⁻¹K₁₂.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gdkl.gp.rbf import sum_to
from gdkl.gp.solver import Marginals, Solver, floor_variance, per_row, solve_factor

_LOG_2PI = math.log(2 * math.pi)

#: Rows of a block in a product of which only the lower half is wanted: of one thread, and of several, which share few
#: large products better than many small ones.
_BLOCK, _SHARED_BLOCK = 64, 128


def block_gradient(L: Tensor, A: Tensor, v: Tensor, of_mean: Tensor, of_reduction: Tensor) -> Tensor:
    """Gradient by the block (K₁₁ K₁₂), ``(..., n1, n1 + n2)``, of a function of what `Solver.project` gives.

    With g and h the gradients by means and reductions it is G₁₂ = 2W diag(h) + αgᵀ and G₁₁ = −W diag(h) Wᵀ − (Wg)αᵀ.
    K₁₁ is symmetric, so only the symmetric part of G₁₁ has a meaning. The gradient by σ² is the sum of the block's
    diagonal. No autograd.
    """
    n1, g = L.shape[-1], of_mean.unsqueeze(-2)
    W = solve_factor(L, A, transposed=True)
    alpha = torch.linalg.solve_triangular(L.mT, v, upper=True)
    doubled = W * (2 * of_reduction).unsqueeze(-2)
    G = W.new_empty(*W.shape[:-1], n1 + W.shape[-1])
    _lower_product(W, doubled.mT, out=G[..., :n1]).addcmul_(W @ g.mT, alpha.mT, value=-1)
    torch.addcmul(doubled, alpha, g, out=G[..., n1:])
    return G


def noise_gradient(G: Tensor, shape: torch.Size) -> Tensor:
    """Gradient by the noise, of one shape for all rows or row by row, from that by the block: no view of it."""
    return sum_to(G.diagonal(dim1=-2, dim2=-1), shape).clone()


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


class _Condition(Function):
    """Means and reductions of a block; see `condition`."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, y1: Tensor, noise: Tensor, name: str) -> tuple[Tensor, Tensor]:
        n1 = y1.shape[-1]
        solver = Solver.of(K[..., :n1], noise, name=name)
        mean, reduction, A, v = solver.project(K[..., n1:], y1)
        ctx.save_for_backward(solver.L, A, v)
        ctx.of_noise = noise.shape
        return mean, reduction

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        L, A, v = cast("tuple[Tensor, ...]", ctx.saved_tensors)
        G = block_gradient(L, A, v, *gradients)
        return G, None, noise_gradient(G, ctx.of_noise), None


def condition(K: Tensor, k22: Tensor, y1: Tensor, noise: Tensor, *, name: str) -> Marginals:
    """Latent marginals ``(..., n2)`` of held-out rows given noisy targets of the observed ones, with any kernel.

    One Cholesky factorisation and one triangular solve; the gradient takes one more solve and one product.

    K is (K₁₁ K₁₂), ``(..., n1, n1 + n2)``, k₂₂ are the held-out rows' prior variances ``(..., n2)``. No gradient flows
    to the targets ``(..., n1)``; the noise is ``(...)``, or ``(..., n1)`` row by row. ``name`` says what K₁₁ + σ²I is,
    for numerical errors.

    Example:
        >>> one = torch.ones(1, dtype=torch.float64)
        >>> q = condition(one.expand(1, 2), one, 3 * one, torch.tensor(0.5, dtype=torch.float64), name="an example")
        >>> print(round(q.mean.item(), 4), round(q.variance.item(), 4))
        2.0 0.3333
    """
    mean, reduction = cast("tuple[Tensor, Tensor]", _Condition.apply(*_one_batch(K, y1, noise), name))
    return Marginals(mean, floor_variance(k22 - reduction, k22))


def _one_batch(K: Tensor, y: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Matrices, targets and noise broadcast to the same batch dimensions."""
    noise = per_row(noise, y)
    batch = torch.broadcast_shapes(K.shape[:-2], y.shape[:-1], noise.shape[:-1])
    y, noise = (value.expand(*batch, value.shape[-1]) for value in (y, noise))
    return K.expand(*batch, *K.shape[-2:]), y, noise


class _EvidenceTerms(Function):
    """½ yᵀC⁻¹y and ½ log |C|; see `evidence_terms`."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, y: Tensor, noise: Tensor, name: str) -> tuple[Tensor, Tensor]:
        solver = Solver.of(K, noise, name=name)
        v = solver.whiten(y.unsqueeze(-1))
        ctx.save_for_backward(solver.L, v)
        ctx.of_noise = noise.shape
        return 0.5 * v.square().sum(dim=(-2, -1)), solver.L.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        # ∂(½ yᵀC⁻¹y)/∂C = −½ααᵀ and ∂(½ log |C|)/∂C = ½C⁻¹.
        g, h = gradients
        L, v = cast("tuple[Tensor, Tensor]", ctx.saved_tensors)
        alpha = torch.linalg.solve_triangular(L.mT, v, upper=True)
        grad_C = Solver(L).inverse() * (0.5 * h)[..., None, None]
        grad_C.addcmul_((-0.5 * g)[..., None, None] * alpha, alpha.mT)
        grad_noise = noise_gradient(grad_C, ctx.of_noise)
        return grad_C, g.unsqueeze(-1) * alpha.squeeze(-1), grad_noise, None


def evidence_terms(K: Tensor, y: Tensor, noise: Tensor, *, name: str) -> tuple[Tensor, Tensor]:
    """Data fit ½ yᵀC⁻¹y and complexity ½ log |C| + ½ n log 2π: their sum is −log N(y; 0, C), C = K + σ²I.

    Shapes: K ``(..., n, n)``, y ``(..., n)``, noise ``(...)`` or, row by row, ``(..., n)``; ``name`` is for numerical
    errors.

    Example:
        >>> fit, complexity = evidence_terms(torch.zeros(1, 1), torch.zeros(1), torch.tensor(1.0), name="an example")
        >>> print(round((fit + complexity).item(), 4))
        0.9189
    """
    fit, log_root = cast("tuple[Tensor, Tensor]", _EvidenceTerms.apply(*_one_batch(K, y, noise), name))
    return fit, log_root + 0.5 * y.shape[-1] * _LOG_2PI
