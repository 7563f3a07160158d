"""Gaussian processes through m inducing points: any number of rows, O(m²) per row and O(m³) per step.

Symbols: Z inducing locations in feature space, K_zz = LLᵀ, u = f(Z) = Lv with the whitened v, whose prior is N(0, I),
and q(v) = N(μ, SSᵀ). For a row with covariances k = k(Z, x) the latent marginal of q(f) = ∫ p(f|u) q(u) du is

    mean  kᵀα          with α = L⁻ᵀμ,
    variance  k(x, x) − kᵀCk  with C = L⁻ᵀ(I − SSᵀ)L⁻¹.

α and C do not depend on the row: one product of a row with an m × m matrix gives its variance, in training as in
prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from gdkl.gp.kernels import GPyTorchKernel, KernelFunction
from gdkl.gp.solver import Marginals, Solver, floor_variance
from gdkl.numerics import DataError

#: Added to the diagonal of K_zz, as a part of its mean: neighbouring inducing points are nearly one function value.
RELATIVE_JITTER = {torch.float64: 1e-8, torch.float32: 1e-5}


@dataclass(eq=False)
class SparsePosterior:
    """A Gaussian process seen through inducing points, ready to predict; gradients flow where its parts have them.

    Features of a network in lower precision are taken into that of the algebra.

    Attributes:
        kernel: Kernel function over features.
        features: Inducing locations, ``(members, m, p)``.
        noise: Noise variances, ``(members, outputs)``.
        weights: α, ``(members, outputs, m)``.
        reduction: C, ``(members, outputs, m, m)``.
    """

    kernel: KernelFunction
    features: Tensor
    noise: Tensor
    weights: Tensor
    reduction: Tensor

    def marginals(self, features: Tensor) -> Marginals:
        """Latent marginals at features ``(members, n, p)``: shape ``(members, outputs, n)`` each."""
        rows, cross, mean = self._project(features)
        prior = self.kernel.diagonal(rows).expand(mean.shape)
        variance = prior - torch.linalg.vecdot(cross @ self.reduction, cross)
        return Marginals(mean, floor_variance(variance, prior))

    def covariance(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Latent mean ``(members, outputs, n)`` and full covariance ``(members, outputs, n, n)``."""
        rows, cross, mean = self._project(features)
        covariance = self.kernel.gram(rows) - cross @ self.reduction @ cross.mT
        return mean, 0.5 * (covariance + covariance.mT)

    def detach(self) -> SparsePosterior:
        """The same beliefs without gradients, row-major, so that one read back from a file rounds as this one does."""
        parts = (self.features, self.noise, self.weights, self.reduction)
        return SparsePosterior(
            self.kernel, *(part.detach().clone(memory_format=torch.contiguous_format) for part in parts)
        )

    def _project(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features as the kernel takes them, their covariances with the inducing points, and means."""
        rows = features.to(self.features).unsqueeze(-3)
        cross = self.kernel.cross(rows, self.features.unsqueeze(-3))
        cross = cross.expand(*self.weights.shape[:-1], *cross.shape[-2:])
        return rows, cross, (cross @ self.weights.unsqueeze(-1)).squeeze(-1)


class InducingPoints(nn.Module):
    """Inducing locations and a whitened variational Gaussian over their function values; all of it is learned.

    Locations ``(members, m, p)`` in feature space are shared by the outputs, each of which has its own Gaussian. q(v)
    starts at its prior N(0, I): before training the model believes what the kernel believes.

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
        K = kernel.gram(self.locations.unsqueeze(-3))
        jitter = RELATIVE_JITTER[K.dtype] * K.detach().diagonal(dim1=-2, dim2=-1).mean(dim=-1, keepdim=True)
        # Under autograd: K_zz has few rows.
        solver = Solver.of(K, jitter, name="the kernel matrix of the inducing points", checked=False).prepared()
        inverse = cast(Tensor, solver.L_inverse).expand(self.raw_factor.shape)
        seen = self.factor.mT @ inverse
        weights = (inverse.mT @ self.mean.unsqueeze(-1)).squeeze(-1)
        return SparsePosterior(kernel, self.locations, noise, weights, inverse.mT @ inverse - seen.mT @ seen)

    def kl(self) -> Tensor:
        """KL(q(v) ‖ N(0, I)), which is KL(q(u) ‖ p(u)), shape ``(members, outputs)``."""
        factor = self.factor
        log_root = factor.diagonal(dim1=-2, dim2=-1).abs().log().sum(dim=-1)
        squares = self.mean.square().sum(dim=-1) + factor.square().sum(dim=(-2, -1))
        return 0.5 * (squares - self.mean.shape[-1]) - log_root
