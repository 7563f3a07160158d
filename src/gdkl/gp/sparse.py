"""Gaussian processes through m inducing points: any number of rows, O(m²) per row and O(m³) per step.

Symbols: Z inducing locations in feature space, K_zz = LLᵀ, u = f(Z) = Lv with the whitened v, whose prior is N(0, I),
and q(v) = N(μ, SSᵀ). For a row with covariances k = k(Z, x) the latent marginal of q(f) = ∫ p(f|u) q(u) du is

    mean  kᵀα          with α = L⁻ᵀμ,
    variance  k(x, x) − kᵀCk  with C = L⁻ᵀ(I − SSᵀ)L⁻¹.

α and C do not depend on the row: one product of a row with an m × m matrix gives its variance, in training as in
prediction.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from gdkl.gp.kernels import GPyTorchKernel, KernelFunction
from gdkl.gp.solver import Marginals, Solver, floor_variance
from gdkl.numerics import DataError, cholesky

_MATRIX_NAME = "the kernel matrix of the inducing points"

#: Added to the diagonal of K_zz, as a part of its mean: neighbouring inducing points are nearly one function value.
RELATIVE_JITTER = {torch.float64: 1e-8, torch.float32: 1e-5}


class SparsePosterior:
    """A Gaussian process seen through inducing points, ready to predict; gradients flow where its parts have them.

    Features of a network in lower precision are taken into that of the algebra.

    Args:
        kernel: Kernel function over features.
        features: Inducing locations, ``(members, m, p)``.
        noise: Noise variances, ``(members, outputs)``.
        weights: α, ``(members, outputs, m)``.
        reduction: C, ``(members, outputs, m, m)``.
    """

    def __init__(self, kernel: KernelFunction, features: Tensor, noise: Tensor, weights: Tensor, reduction: Tensor):
        self.kernel = kernel
        self.features = features
        self.noise = noise
        self.weights = weights
        self.reduction = reduction

    def marginals(self, features: Tensor) -> Marginals:
        """Latent marginals at features ``(members, n, p)``: shape ``(members, outputs, n)`` each."""
        features = features.to(self.features)
        cross = self._cross(features)
        mean = (cross @ self.weights.unsqueeze(-1)).squeeze(-1)
        prior = self.kernel.diagonal(features.unsqueeze(-3)).expand(mean.shape)
        variance = prior - torch.linalg.vecdot(cross @ self.reduction, cross)
        return Marginals(mean, floor_variance(variance, prior))

    def covariance(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Latent mean ``(members, outputs, n)`` and full covariance ``(members, outputs, n, n)``."""
        features = features.to(self.features)
        cross = self._cross(features)
        mean = (cross @ self.weights.unsqueeze(-1)).squeeze(-1)
        covariance = self.kernel.gram(features.unsqueeze(-3)) - cross @ self.reduction @ cross.mT
        return mean, 0.5 * (covariance + covariance.mT)

    def detach(self) -> SparsePosterior:
        """The same beliefs without gradients, row-major, so that one read back from a file rounds as this one does."""
        parts = (self.features, self.noise, self.weights, self.reduction)
        return SparsePosterior(
            self.kernel, *(part.detach().clone(memory_format=torch.contiguous_format) for part in parts)
        )

    def _cross(self, features: Tensor) -> Tensor:
        cross = self.kernel.cross(features.unsqueeze(-3), self.features.unsqueeze(-3))
        return cross.expand(*self.weights.shape[:-1], *cross.shape[-2:])


class InducingPoints(nn.Module):
    """Inducing locations and a whitened variational Gaussian over their function values; all of it is learned.

    q(v) starts at its prior N(0, I): before training the model believes what the kernel believes.

    Args:
        locations: Where they start, in feature space, shape ``(members, m, p)``.
        outputs: Number of latent functions, each with a Gaussian of its own over the shared locations.

    Example:
        >>> points = InducingPoints(torch.randn(1, 5, 2, dtype=torch.float64), outputs=3)
        >>> points.mean.shape, points.factor.shape, points.kl().abs().max().item()
        (torch.Size([1, 3, 5]), torch.Size([1, 3, 5, 5]), 0.0)
    """

    def __init__(self, locations: Tensor, outputs: int):
        super().__init__()
        if locations.dim() != 3:
            raise DataError(f"inducing locations must be (members, m, features); got {tuple(locations.shape)}.")
        members, m, _ = locations.shape
        self.locations = nn.Parameter(locations.detach().clone())
        self.mean = nn.Parameter(locations.new_zeros(members, outputs, m))
        identity = torch.eye(m, dtype=locations.dtype, device=locations.device)
        self.raw_factor = nn.Parameter(identity.expand(members, outputs, m, m).clone())

    @property
    def factor(self) -> Tensor:
        """S, lower triangular, shape ``(members, outputs, m, m)``."""
        return self.raw_factor.tril()

    def posterior(self, kernel: GPyTorchKernel, noise: Tensor) -> SparsePosterior:
        """What the model believes now, with gradients to locations, Gaussian, kernel and noise."""
        inverse = inverse_factor(kernel, self.locations).expand(self.raw_factor.shape)
        seen = self.factor.mT @ inverse
        return SparsePosterior(
            kernel,
            self.locations,
            noise,
            (inverse.mT @ self.mean.unsqueeze(-1)).squeeze(-1),
            inverse.mT @ inverse - seen.mT @ seen,
        )

    def kl(self) -> Tensor:
        """KL(q(v) ‖ N(0, I)), which is KL(q(u) ‖ p(u)), shape ``(members, outputs)``."""
        factor = self.factor
        log_root = factor.diagonal(dim1=-2, dim2=-1).abs().log().sum(dim=-1)
        squares = self.mean.square().sum(dim=-1) + factor.square().sum(dim=(-2, -1))
        return 0.5 * (squares - self.mean.shape[-1]) - log_root

    @torch.no_grad()
    def set_optimal(self, kernel: GPyTorchKernel, features: Tensor, targets: Tensor, noise: Tensor) -> None:
        """The q(v) that maximises the evidence bound of Gaussian targets, in closed form (Titsias, 2009).

        With A = L⁻¹K_zx and Λ = I + AAᵀ/σ² it is N(Λ⁻¹Ay/σ², Λ⁻¹). Shapes: features ``(members, n, p)``, targets
        ``(members, outputs, n)``, noise ``(members, outputs)``.
        """
        inverse = inverse_factor(kernel, self.locations)
        A = inverse @ kernel.cross(features.unsqueeze(-3), self.locations.unsqueeze(-3)).mT
        variance = noise[..., None, None]
        precision = Solver.of(A @ A.mT / variance, torch.ones_like(noise).unsqueeze(-1), name="the precision of q(u)")
        self.mean.copy_(precision.weights((A @ targets.unsqueeze(-1) / variance).squeeze(-1)))
        # Λ⁻¹ = R⁻ᵀR⁻¹; its own lower factor is needed, R⁻ᵀ is an upper one.
        self.raw_factor.copy_(cholesky(precision.inverse(), name="the covariance of q(u)"))


def inverse_factor(kernel: GPyTorchKernel, locations: Tensor) -> Tensor:
    """L⁻¹ of K_zz = LLᵀ with its jitter, shape ``(members, outputs, m, m)``."""
    K = kernel.gram(locations.unsqueeze(-3))
    jitter = RELATIVE_JITTER[K.dtype] * K.detach().diagonal(dim1=-2, dim2=-1).mean(dim=-1, keepdim=True)
    # Under autograd: K_zz has few rows.
    inverse = Solver.of(K, jitter, name=_MATRIX_NAME, checked=False).prepared().L_inverse
    return cast(Tensor, inverse)
