"""The published training steps written plainly with GPyTorch: what `exact_step.py` compares ours with.

GDKL: the kernel over all rows through an `ExactGP` deep kernel, its sub-matrices picked by index, the posterior by
GPyTorch's own dense operators, Adam. DKL: `ExactMarginalLogLikelihood` of the same model.
"""

from __future__ import annotations

import gpytorch
import torch
from linear_operator import LinearOperator, to_linear_operator
from torch import Tensor, nn


class DeepExactGP(gpytorch.models.ExactGP):
    """A network under an RBF kernel, as GPyTorch's documentation writes it."""

    def __init__(
        self, rows: Tensor, targets: Tensor, likelihood: gpytorch.likelihoods.GaussianLikelihood, net: nn.Module
    ):
        super().__init__(rows, targets, likelihood)
        self.net = net
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """Prior over the rows."""
        features = self.net(x)
        return gpytorch.distributions.MultivariateNormal(self.mean_module(features), self.covar_module(features))


def make_model(rows: Tensor, targets: Tensor, net: nn.Module) -> DeepExactGP:
    """A deep kernel with the published noise start."""
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(rows)
    likelihood.noise = 0.0174
    return DeepExactGP(rows, targets, likelihood, net).to(rows)


class GPyTorchDKL:
    """A step of plain deep kernel learning."""

    def __init__(self, rows: Tensor, targets: Tensor, net: nn.Module):
        self.rows, self.targets = rows, targets
        self.model = make_model(rows, targets, net)
        self.evidence = gpytorch.mlls.ExactMarginalLogLikelihood(self.model.likelihood, self.model)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.model.train()

    def step(self) -> None:
        """One gradient step."""
        self.optimiser.zero_grad()
        loss = -self.evidence(self.model(self.rows), self.targets)
        loss.backward()
        self.optimiser.step()


class PublishedGDKL:
    """A step of the published guided procedure."""

    def __init__(self, rows: Tensor, targets: Tensor, net: nn.Module, guide_gram: Tensor, guide_noise: float):
        self.rows, self.targets = rows, targets
        self.guide_gram, self.guide_noise = guide_gram, guide_noise
        self.model = make_model(rows, targets, net)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.model.train()

    def _posterior(self, K: LinearOperator, one: Tensor, two: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Predictive of the second rows given the first, from sub-matrices of a lazy kernel picked by index."""
        K11 = K[one][:, one].add_diagonal(noise.expand(len(one)))
        K21 = K[two][:, one].to_dense()
        mean = (K21 @ K11.solve(self.targets[one].unsqueeze(-1))).squeeze(-1)
        variance = K[two][:, two].diagonal(dim1=-1, dim2=-2) - (K21 * K11.solve(K21.mT).mT).sum(-1)
        return mean, variance

    def step(self) -> None:
        """One gradient step on a fresh random split."""
        self.optimiser.zero_grad()
        order = torch.randperm(len(self.rows))
        one, two = order[: len(order) // 2], order[len(order) // 2 :]
        noise = self.model.likelihood.noise
        mq, vq = self._posterior(self.model(self.rows).lazy_covariance_matrix, one, two, noise)
        with torch.no_grad():
            mp, vp = self._posterior(
                to_linear_operator(self.guide_gram), one, two, torch.tensor(self.guide_noise).to(self.targets)
            )
        y = self.targets[two]
        ell = 0.5 * (torch.log(2 * torch.pi * noise) + ((y - mq) ** 2 + vq) / noise)
        kl = 0.5 * (torch.log(vp / vq) + (vq + (mq - mp) ** 2) / vp - 1)
        (ell + kl).mean().backward()
        self.optimiser.step()
