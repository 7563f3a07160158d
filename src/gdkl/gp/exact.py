"""Exact Gaussian-process posteriors as short dense algebra over batches.

Shapes: a batch ``(...)`` is ``(members, outputs)`` in training; targets are ``(..., n)`` and kernels
``(..., n, n)``. Symbols follow the paper: K₁₁ over the observed half D1, K₂₁ between the held-out half D2 and
D1, k₂₂ the prior variances on D2, σ² the noise.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gdkl.gp.conditioning import Marginals, add_noise, floor_variance
from gdkl.gp.kernels import KernelFunction
from gdkl.numerics import cholesky


class Split(NamedTuple):
    """One random split of the rows, or several: index tensors ``(..., n1)`` and ``(..., n2)``."""

    observed: Tensor
    held_out: Tensor


def take_rows(rows: Tensor, index: Tensor) -> Tensor:
    """Pick rows for each member: ``rows[m, index[m]]``.

    Args:
        rows: Shape ``(members, n, ...)``.
        index: Shape ``(members, k)``.

    Returns:
        Shape ``(members, k, ...)``.
    """
    if len(rows) == 1:
        return rows[0].index_select(0, index[0]).unsqueeze(0)
    member = torch.arange(rows.shape[0], device=rows.device).unsqueeze(-1)
    return rows[member, index]


def take_targets(targets: Tensor, index: Tensor) -> Tensor:
    """Pick targets for each member: ``targets[m, :, index[m]]``.

    Args:
        targets: Shape ``(members, outputs, n)``.
        index: Shape ``(..., members, k)``.

    Returns:
        Shape ``(..., members, outputs, k)``.
    """
    if len(targets) == 1 and index.shape[:-1] == (1,):
        return targets[0].index_select(-1, index[0]).unsqueeze(0)
    index = index.unsqueeze(-2)
    return torch.take_along_dim(targets.expand(*index.shape[:-3], *targets.shape), index, dim=-1)


class ExactPosterior:
    """A Gaussian process conditioned on all of its training rows, ready to predict.

    The factor of K + σ²I and the weights α = (K + σ²I)⁻¹y are computed once; predicting touches neither the
    targets nor the network again.

    Args:
        kernel: Kernel function over features.
        features: Training features, shape ``(members, n, p)``.
        noise: Noise variances, shape ``(members, outputs)``.
        factor: Lower Cholesky factor of K + σ²I, shape ``(members, outputs, n, n)``.
        weights: α, shape ``(members, outputs, n)``.
    """

    def __init__(self, kernel: KernelFunction, features: Tensor, noise: Tensor, factor: Tensor, weights: Tensor):
        self.kernel = kernel
        self.features = features
        self.noise = noise
        self.factor = factor
        self.weights = weights

    @classmethod
    def condition(
        cls, kernel: KernelFunction, features: Tensor, targets: Tensor, noise: Tensor, *, name: str
    ) -> ExactPosterior:
        """Condition on training features ``(members, n, p)`` and targets ``(members, outputs, n)``."""
        with torch.no_grad():
            K = kernel.gram(features.unsqueeze(-3)).expand(*targets.shape, targets.shape[-1])
            factor = cholesky(add_noise(K, noise), name=name)
            weights = torch.cholesky_solve(targets.unsqueeze(-1), factor).squeeze(-1)
        # Row-major throughout: a posterior read back from a file then rounds as this one does, bit for bit.
        return cls(kernel, features.detach().contiguous(), noise.detach(), factor.contiguous(), weights.contiguous())

    @torch.no_grad()
    def marginals(self, features: Tensor) -> Marginals:
        """Latent marginals at new features ``(members, m, p)``: shape ``(members, outputs, m)`` each."""
        cross, whitened = self._project(features)
        mean = (cross @ self.weights.unsqueeze(-1)).squeeze(-1)
        prior = self.kernel.diagonal(features.unsqueeze(-3)).expand(mean.shape)
        return Marginals(mean, floor_variance(prior - whitened.square().sum(dim=-2), prior))

    @torch.no_grad()
    def covariance(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Latent mean ``(members, outputs, m)`` and full covariance ``(members, outputs, m, m)``."""
        cross, whitened = self._project(features)
        mean = (cross @ self.weights.unsqueeze(-1)).squeeze(-1)
        prior = self.kernel.gram(features.unsqueeze(-3))
        covariance = prior - whitened.mT @ whitened
        return mean, 0.5 * (covariance + covariance.mT)

    @torch.no_grad()
    def left_out_variances(self) -> Tensor:
        """Variance of each training target given all others, ``(members, outputs, n)``.

        With C = K + σ²I it is 1 / diag(C⁻¹), the noise of conditioning included.
        """
        return torch.cholesky_inverse(self.factor).diagonal(dim1=-2, dim2=-1).reciprocal()

    def _project(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """K(new, train) and L⁻¹K(train, new)."""
        cross = self.kernel.cross(features.unsqueeze(-3), self.features.unsqueeze(-3))
        cross = cross.expand(*self.weights.shape[:-1], *cross.shape[-2:])
        return cross, torch.linalg.solve_triangular(self.factor, cross.mT, upper=False)
