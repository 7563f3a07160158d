"""The one conditioning of this library: a Cholesky factor of C = K + D, and all that follows from it.

Shapes: batch dimensions ``(...)`` first; targets ``(..., n)``; covariances with m new rows ``(..., n, m)``. A batch is
``(members, outputs)`` in most uses. One matrix may serve several outputs: then the factor has 1 where the targets have
their number of outputs. Everything is differentiable by autograd; `gdkl.gp.conditioning` has shorter gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from gdkl.numerics import cholesky

#: Part of the prior variance below which a posterior variance is rounding error.
RELATIVE_VARIANCE_FLOOR = 1e-12


class Marginals(NamedTuple):
    """Gaussian marginals of latent function values: means and variances, both ``(..., n)``."""

    mean: Tensor
    variance: Tensor

    def divide(self, count: int) -> tuple[Marginals, Marginals]:
        """Those of the first rows and of the others."""
        first, others = zip(*(value.tensor_split([count], dim=-1) for value in self), strict=True)
        return Marginals(*first), Marginals(*others)


def per_row(noise: Tensor, y: Tensor) -> Tensor:
    """Noise of targets ``(..., n)`` as what stands on their diagonal: ``(...)`` becomes ``(..., 1)``."""
    return noise if noise.dim() == y.dim() else noise.unsqueeze(-1)


def floor_variance(variance: Tensor, prior_variance: Tensor) -> Tensor:
    """Keep a posterior variance above the rounding error of its prior: its logarithm is taken next."""
    return torch.maximum(variance, RELATIVE_VARIANCE_FLOOR * prior_variance)


@dataclass(frozen=True)
class Solver:
    """Solves with C = LLᵀ.

    Attributes:
        L: Lower Cholesky factor, ``(..., n, n)``.
        L_inverse: L⁻¹ where `prepared` has computed it.

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> solver = Solver.of(one, torch.tensor([0.5], dtype=torch.float64), name="an example")
        >>> p = solver.marginals(one, one[0], 3 * one[0])
        >>> print(round(p.mean.item(), 4), round(p.variance.item(), 4))
        2.0 0.3333
    """

    L: Tensor
    L_inverse: Tensor | None = None

    @classmethod
    def of(cls, K: Tensor, noise: Tensor, *, name: str, checked: bool = True) -> Solver:
        """Factorise K + diag(noise), K ``(..., n, n)``; the batch of the noise broadcasts with that of K.

        Args:
            K: Symmetric; left as it is.
            noise: Variances ``(..., n)``, or ``(..., 1)`` for all rows alike.
            name: What the matrix is, for numerical errors.
            checked: Whether failures raise on a GPU too, for which the CPU would have to wait: what fails there
                unchecked is NaN, and stops the training loop.
        """
        batch = torch.broadcast_shapes(K.shape[:-2], noise.shape[:-1])
        C = K.expand(*batch, *K.shape[-2:]).clone(memory_format=torch.contiguous_format)
        C.diagonal(dim1=-2, dim2=-1).add_(noise)
        return cls(cholesky(C, name=name) if checked or not C.is_cuda else torch.linalg.cholesky_ex(C).L)

    def prepared(self) -> Solver:
        """The same with L⁻¹ computed: for many new rows a product is several times as fast as a solve."""
        identity = torch.eye(self.L.shape[-1], dtype=self.L.dtype, device=self.L.device)
        return replace(self, L_inverse=torch.linalg.solve_triangular(self.L, identity, upper=False))

    def whiten(self, B: Tensor) -> Tensor:
        """L⁻¹B."""
        return solve_factor(self.L, B) if self.L_inverse is None else self.L_inverse @ B

    def weights(self, y: Tensor) -> Tensor:
        """α = C⁻¹y of targets ``(..., n)``."""
        if self._serves_several(y):
            return torch.cholesky_solve(y.mT, self.L.squeeze(-3)).mT
        return torch.cholesky_solve(y.unsqueeze(-1), self.L).squeeze(-1)

    def inverse(self) -> Tensor:
        """C⁻¹."""
        return torch.cholesky_inverse(self.L)

    def project(self, K12: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Posterior means Aᵀv at m new rows, what their variances are below the prior ones, ΣA², and A and v.

        A = L⁻¹K₁₂ is ``(..., n, m)``; v = L⁻¹y has one column per output, or all beside each other for a shared factor.
        """
        several = self._serves_several(y)
        A, v = self.whiten(K12), self.whiten(y.mT.unsqueeze(-3) if several else y.unsqueeze(-1))
        return (v.mT @ A).squeeze(-3 if several else -2), A.square().sum(dim=-2), A, v

    def marginals(self, K12: Tensor, k22: Tensor, y: Tensor) -> Marginals:
        """Latent marginals at new rows, without noise, given K₁₂ ``(..., n, m)`` and prior variances ``(..., m)``."""
        mean, reduction, *_ = self.project(K12, y)
        return Marginals(mean, floor_variance(k22 - reduction, k22).expand_as(mean))

    def left_out(self, y: Tensor, groups: Tensor | None = None) -> Marginals:
        """Mean and variance of each target given all others, noise included, for the price of one inverse.

        A target that is left out has mean y − α / diag(C⁻¹) and variance 1 / diag(C⁻¹); a group g of them that are left
        out together has mean y_g − Σα_g and covariance Σ = [C⁻¹]_gg⁻¹. ``groups``, ``(n,)``, numbers the group that
        each row is left out with; None to leave out one at a time.
        """
        inverse, alpha = self.inverse(), self.weights(y)
        variance = inverse.diagonal(dim1=-2, dim2=-1).reciprocal().expand_as(y).clone()
        mean = y - alpha * variance
        if groups is not None:
            for group in torch.nonzero(torch.bincount(groups) > 1).flatten():
                rows = torch.nonzero(groups == group).flatten()
                precision = cholesky(inverse[..., rows[:, None], rows], name="the inverse of the kernel matrix")
                covariance = torch.cholesky_inverse(precision)
                mean[..., rows] = y[..., rows] - (covariance @ alpha[..., rows].unsqueeze(-1)).squeeze(-1)
                variance[..., rows] = covariance.diagonal(dim1=-2, dim2=-1)
        return Marginals(mean, variance)

    def _serves_several(self, y: Tensor) -> bool:
        """Whether one factor serves several outputs."""
        return self.L.dim() > 2 and y.dim() > 1 and self.L.shape[-3] == 1 and y.shape[-2] > 1


def solve_factor(L: Tensor, B: Tensor, *, transposed: bool = False) -> Tensor:
    """L⁻¹B, or L⁻ᵀB; batches broadcast.

    One thread takes a quarter less time for wide B in the order of its rows, from the right; several threads far more.
    """
    T = L.mT if transposed else L
    if B.device.type == "cpu" and torch.get_num_threads() == 1:
        return torch.linalg.solve_triangular(T.mT, B.mT, upper=not transposed, left=False).mT
    return torch.linalg.solve_triangular(T, B, upper=transposed)
