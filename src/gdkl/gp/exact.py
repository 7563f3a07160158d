"""A Gaussian process conditioned on all of its training rows, and how rows are picked by a split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gdkl.gp.kernels import KernelFunction
from gdkl.gp.solver import Marginals, Solver, floor_variance, solve_factor
from gdkl.numerics import cholesky


class Split(NamedTuple):
    """One random split of the rows, or several: index tensors ``(..., n1)`` and ``(..., n2)``."""

    observed: Tensor
    held_out: Tensor


def take_rows(rows: Tensor, index: Tensor) -> Tensor:
    """Pick rows of each member, ``rows[m, index[m]]``: from ``(members, n, ...)`` by ``(members, k)``."""
    if len(rows) == 1:
        return rows[0].index_select(0, index[0]).unsqueeze(0)
    member = torch.arange(rows.shape[0], device=rows.device).unsqueeze(-1)
    return rows[member, index]


def take_targets(targets: Tensor, index: Tensor) -> Tensor:
    """Pick targets of each member: from ``(members, outputs, n)`` by ``(..., members, k)``."""
    if len(targets) == 1 and index.shape[:-1] == (1,):
        return targets[0].index_select(-1, index[0]).unsqueeze(0)
    index = index.unsqueeze(-2)
    return torch.take_along_dim(targets.expand(*index.shape[:-3], *targets.shape), index, dim=-1)


def take_noise(noise: Tensor, index: Tensor) -> Tensor:
    """Noise of some rows of each member: picked as targets are if it is row by row, ``(members, outputs, n)``."""
    return noise if noise.dim() < 3 else take_targets(noise, index)


@dataclass(eq=False)
class ExactPosterior:
    """A Gaussian process conditioned on all of its training rows, ready to predict.

    The factor of K + σ²I and the weights α = (K + σ²I)⁻¹y are computed once; predicting touches neither the
    targets nor the network again.

    Attributes:
        kernel: Kernel function over features.
        features: Training features, ``(members, n, p)``.
        noise: Noise variances, ``(members, outputs)``.
        factor: Lower Cholesky factor of K + σ²I, ``(members, outputs, n, n)``.
        weights: α, ``(members, outputs, n)``.
    """

    kernel: KernelFunction
    features: Tensor
    noise: Tensor
    factor: Tensor
    weights: Tensor

    @classmethod
    @torch.no_grad()
    def condition(
        cls,
        kernel: KernelFunction,
        features: Tensor,
        targets: Tensor,
        noise: Tensor,
        *,
        row_noise: Tensor | None = None,
        name: str,
    ) -> ExactPosterior:
        """Condition on training rows: features ``(members, n, p)`` and targets ``(members, outputs, n)``.

        The noise is ``(members, outputs)``; ``row_noise``, of the targets' shape, is what each target has beside it, as
        labels do; it may be negative, the sum may not. ``name`` says what the matrix is, for numerical errors.
        """
        K = kernel.gram(features.unsqueeze(-3)).expand(*targets.shape, targets.shape[-1])
        on_diagonal = noise.unsqueeze(-1) if row_noise is None else noise.unsqueeze(-1) + row_noise
        solver = Solver.of(K, on_diagonal, name=name)
        parts = features, noise, solver.L, solver.weights(targets)
        # Row-major throughout: a posterior read back from a file then rounds as this one does, bit for bit.
        return cls(kernel, *(part.detach().contiguous() for part in parts))

    def extend(
        self, features: Tensor, targets: Tensor, *, row_noise: Tensor | None = None, name: str
    ) -> ExactPosterior:
        """Condition on further rows: features ``(..., members, m, p)``, targets ``(..., members, outputs, m)``.

        It equals conditioning on all rows at once, for O(n²m) operations in place of O(n³). Batch dimensions may stand
        before the members; each entry is a posterior of its own then. Gradients flow to features and targets. The
        arguments are those of `condition`.
        """
        known, n = self.features, self.weights.shape[-1]
        cross = self.kernel.cross(features.unsqueeze(-3), known.unsqueeze(-3))
        K = self.kernel.gram(features.unsqueeze(-3)).expand(*targets.shape, targets.shape[-1])
        noise = self.noise.unsqueeze(-1) if row_noise is None else self.noise.unsqueeze(-1) + row_noise
        # With C = LLᵀ of the known rows the factor of all is ((L, 0), (Aᵀ, L₂)), A = L⁻¹K₁₂ and L₂L₂ᵀ = C₂ − AᵀA.
        A = solve_factor(self.factor, cross.mT.expand(*targets.shape[:-1], n, targets.shape[-1]))
        L2 = Solver.of(K - A.mT @ A, noise, name=name).L
        upper = torch.cat([self.factor.expand(*A.shape[:-1], n), torch.zeros_like(A)], dim=-1)
        L = torch.cat([upper, torch.cat([A.mT, L2], dim=-1)], dim=-2)
        # Lᵀα = L⁻¹y is what the known targets leave: they are not stored.
        v1 = (self.factor.mT @ self.weights.unsqueeze(-1)).expand(*targets.shape[:-1], n, 1)
        v2 = solve_factor(L2, targets.unsqueeze(-1) - A.mT @ v1)
        weights = solve_factor(L, torch.cat([v1, v2], dim=-2), transposed=True).squeeze(-1)
        both = torch.cat([known.expand(*features.shape[:-2], *known.shape[-2:]), features], dim=-2)
        return ExactPosterior(self.kernel, both, self.noise, L, weights)

    @torch.no_grad()
    def marginals(self, features: Tensor) -> Marginals:
        """Latent marginals at new features ``(members, m, p)``: ``(members, outputs, m)`` each."""
        features = features.to(self.features)
        mean, whitened = self._project(features)
        prior = self.kernel.diagonal(features.unsqueeze(-3)).expand(mean.shape)
        return Marginals(mean, floor_variance(prior - whitened.square().sum(dim=-2), prior))

    def covariance(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Latent means ``(..., members, outputs, m)`` and full covariances ``(..., members, outputs, m, m)``.

        From features ``(..., members, m, p)``, to which gradients flow; each entry of the leading dimensions is a set
        of rows with a covariance of its own.
        """
        features = features.to(self.features)
        *sets, _, m, _ = features.shape
        # The rows of all sets beside each other: one product with the training rows.
        mean, whitened = self._project(features.movedim(-3, 0).flatten(1, -2))
        mean = mean.unflatten(-1, (*sets, m)).movedim((0, 1), (-3, -2))
        whitened = whitened.unflatten(-1, (*sets, m)).movedim((0, 1, 2), (-4, -3, -2))
        covariance = self.kernel.gram(features.unsqueeze(-3)) - whitened.mT @ whitened
        return mean, 0.5 * (covariance + covariance.mT)

    @property
    def targets(self) -> Tensor:
        """The training targets y = LLᵀα, ``(members, outputs, n)``: of labels, what stands for them."""
        return (self.factor @ (self.factor.mT @ self.weights.unsqueeze(-1))).squeeze(-1)

    @property
    def row_noise(self) -> Tensor:
        """What stands on the diagonal beside the kernel: the noise and what each row has of its own."""
        return self.factor.square().sum(dim=-1) - self._prior()

    @torch.no_grad()
    def left_out(self) -> Marginals:
        """Latent marginals of each training row given all others, ``(members, outputs, n)`` each.

        The hyperparameters, and the features, are those that all rows have chosen.
        """
        targets, prior = self.targets, self._prior()
        mean, variance = torch.empty_like(targets), torch.empty_like(targets)
        # One inverse at a time: members and outputs together would take as much memory as training.
        for index in ((m, k) for m in range(targets.shape[0]) for k in range(targets.shape[1])):
            mean[index], variance[index] = Solver(self.factor[index]).left_out(targets[index])
        return Marginals(mean, floor_variance(variance - self.row_noise, prior))

    @torch.no_grad()
    def take(self, rows: Tensor, *, name: str) -> ExactPosterior:
        """The same hyperparameters conditioned on some of the training rows, by their positions ``(k,)``."""
        some = self.factor[..., rows, :]
        solver = Solver(cholesky(some @ some.mT, name=name))
        weights = solver.weights(self.targets[..., rows])
        return ExactPosterior(self.kernel, self.features[..., rows, :], self.noise, solver.L, weights)

    def _prior(self) -> Tensor:
        """Prior variances of the training rows, ``(members, outputs, n)``."""
        return self.kernel.diagonal(self.features.unsqueeze(-3)).expand(self.weights.shape)

    def _project(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Means K(new, train)α, and L⁻¹K(train, new)."""
        cross = self.kernel.cross(features.unsqueeze(-3), self.features.unsqueeze(-3))
        cross = cross.expand(*self.weights.shape[:-1], *cross.shape[-2:])
        return (cross @ self.weights.unsqueeze(-1)).squeeze(-1), Solver(self.factor).whiten(cross.mT)
