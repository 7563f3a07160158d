"""Conditioning and evidence with gradients written out: no autograd through a Cholesky factorisation.

Autograd differentiates a factorisation and a triangular solve by several more solves of the same size. The
derivatives of what is wanted, a posterior's marginals and an evidence, are short products of things that the forward
pass already has. Symbols: C = K + σ²I = LLᵀ, α = C⁻¹y, W = C⁻¹K₁₂.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gdkl.numerics import cholesky

#: Part of the prior variance below which a posterior variance is rounding error.
RELATIVE_VARIANCE_FLOOR = 1e-12

_LOG_2PI = math.log(2 * math.pi)


class Marginals(NamedTuple):
    """Gaussian marginals of latent function values: means and variances, both ``(..., n)``."""

    mean: Tensor
    variance: Tensor


def add_noise(kernel_matrix: Tensor, noise: Tensor) -> Tensor:
    """K + σ²I for each batch entry, in new memory; ``noise`` broadcasts with the batch. No gradients."""
    if kernel_matrix.shape[:-2] != noise.shape:
        batch = torch.broadcast_shapes(kernel_matrix.shape[:-2], noise.shape)
        kernel_matrix = kernel_matrix.expand(*batch, *kernel_matrix.shape[-2:])
    C = kernel_matrix.clone(memory_format=torch.contiguous_format)
    C.diagonal(dim1=-2, dim2=-1).add_(noise.unsqueeze(-1))
    return C


def floor_variance(variance: Tensor, prior_variance: Tensor) -> Tensor:
    """Keep a posterior variance above the rounding error of its prior: its logarithm is taken next."""
    return torch.maximum(variance, RELATIVE_VARIANCE_FLOOR * prior_variance)


class _Condition(Function):
    """Means Aᵀv and reductions Σ A² with A = L⁻¹K₁₂ and v = L⁻¹y; see `condition`."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, y1: Tensor, noise: Tensor, name: str) -> tuple[Tensor, Tensor]:
        n1 = y1.shape[-1]
        L = cholesky(add_noise(K[..., :n1, :], noise), name=name)
        # K₁₂ as the transpose of rows is in the order that the solver wants: nothing is copied to and fro.
        A = torch.linalg.solve_triangular(L, K[..., n1:, :].mT, upper=False)
        v = torch.linalg.solve_triangular(L, y1.unsqueeze(-1), upper=False)
        ctx.save_for_backward(L, A, v)
        return (A.mT @ v).squeeze(-1), A.mT.square().sum(dim=-1)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        # mean = K₂₁α and reduction_j = k_jᵀC⁻¹k_j, so with g and h their gradients and B = diag(h)Wᵀ + gαᵀ
        #   ∂/∂K₂₁ = B + diag(h)Wᵀ,   ∂/∂C = −WB,   ∂/∂y = Wg.
        # C is symmetric, so only the symmetric part of ∂/∂C has a meaning: it is not symmetrised here.
        g, h = gradients
        L, A, v = cast("tuple[Tensor, ...]", ctx.saved_tensors)
        W = torch.linalg.solve_triangular(L.mT, A, upper=True)
        alpha = torch.linalg.solve_triangular(L.mT, v, upper=True)
        weighted = W.mT * h.unsqueeze(-1)
        B = torch.addcmul(weighted, g.unsqueeze(-1), alpha.mT)
        n1, n2 = W.shape[-2:]
        grad_K = W.new_empty(*W.shape[:-2], n1 + n2, n1)
        torch.neg(W @ B, out=grad_K[..., :n1, :])
        torch.add(B, weighted, out=grad_K[..., n1:, :])
        grad_noise = grad_K[..., :n1, :].diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        return grad_K, (W @ g.unsqueeze(-1)).squeeze(-1), grad_noise, None


def condition(K: Tensor, k22: Tensor, y1: Tensor, noise: Tensor, *, name: str) -> Marginals:
    """Latent marginals on held-out rows given noisy targets on the observed ones.

    One Cholesky factorisation and one triangular solve: with LLᵀ = K₁₁ + σ²I, A = L⁻¹K₁₂ and v = L⁻¹y₁, the
    means are Aᵀv and the variances k₂₂ − Σ A². The gradient takes one more solve and one product.

    Args:
        K: K₁₁ with K₂₁ below it, shape ``(..., n1 + n2, n1)``: kernel of observed, then held-out, rows with the
            observed ones.
        k22: Prior variances of the held-out rows, shape ``(..., n2)``.
        y1: Observed targets, shape ``(..., n1)``.
        noise: Noise variances, shape ``(...)``.
        name: What the matrix K₁₁ + σ²I is, for numerical errors.

    Returns:
        Marginals without noise, shape ``(..., n2)``.

    Example:
        >>> one = torch.ones(1, dtype=torch.float64)
        >>> q = condition(one.expand(2, 1), one, 3 * one, torch.tensor(0.5, dtype=torch.float64), name="an example")
        >>> print(round(q.mean.item(), 4), round(q.variance.item(), 4))
        2.0 0.3333
    """
    batch = torch.broadcast_shapes(K.shape[:-2], y1.shape[:-1], noise.shape)
    mean, reduction = cast(
        "tuple[Tensor, Tensor]",
        _Condition.apply(K.expand(*batch, *K.shape[-2:]), y1.expand(*batch, y1.shape[-1]), noise.expand(batch), name),
    )
    return Marginals(mean, floor_variance(k22 - reduction, k22))


class _EvidenceTerms(Function):
    """½ yᵀC⁻¹y and ½ log |C|; see `evidence_terms`."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, y: Tensor, noise: Tensor, name: str) -> tuple[Tensor, Tensor]:
        L = cholesky(add_noise(K, noise), name=name)
        v = torch.linalg.solve_triangular(L, y.unsqueeze(-1), upper=False)
        ctx.save_for_backward(L, v)
        return 0.5 * v.square().sum(dim=(-2, -1)), L.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        # ∂(½ yᵀC⁻¹y)/∂C = −½ααᵀ and ∂(½ log |C|)/∂C = ½C⁻¹.
        g, h = gradients
        L, v = cast("tuple[Tensor, Tensor]", ctx.saved_tensors)
        alpha = torch.linalg.solve_triangular(L.mT, v, upper=True)
        grad_C = torch.cholesky_inverse(L) * (0.5 * h)[..., None, None]
        grad_C.addcmul_((-0.5 * g)[..., None, None] * alpha, alpha.mT)
        grad_noise = grad_C.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        return grad_C, g.unsqueeze(-1) * alpha.squeeze(-1), grad_noise, None


def evidence_terms(K: Tensor, y: Tensor, noise: Tensor, *, name: str) -> tuple[Tensor, Tensor]:
    """Data fit ½ yᵀC⁻¹y and complexity ½ log |C| + ½ n log 2π: their sum is −log N(y; 0, C), C = K + σ²I.

    Args:
        K: Kernel over all rows, shape ``(..., n, n)``.
        y: Targets, shape ``(..., n)``.
        noise: Noise variances, shape ``(...)``.
        name: What C is, for numerical errors.

    Returns:
        Two tensors of the batch's shape.

    Example:
        >>> fit, complexity = evidence_terms(torch.zeros(1, 1), torch.zeros(1), torch.tensor(1.0), name="an example")
        >>> print(round((fit + complexity).item(), 4))
        0.9189
    """
    batch = torch.broadcast_shapes(K.shape[:-2], y.shape[:-1], noise.shape)
    fit, log_root = cast(
        "tuple[Tensor, Tensor]",
        _EvidenceTerms.apply(K.expand(*batch, *K.shape[-2:]), y.expand(*batch, y.shape[-1]), noise.expand(batch), name),
    )
    return fit, log_root + 0.5 * y.shape[-1] * _LOG_2PI
