"""The published training steps written plainly with GPyTorch: what `exact_step.py` compares ours with.

GDKL: both models are `ExactGP`s. The guide's kernel picks sub-matrices of a Gram matrix by index and the guide predicts
in evaluation mode; the student's prior over all rows is conditioned on the first half by GPyTorch's own prediction
strategy, with its caches left in the graph, so that gradients flow; the rows that a split leaves out are found by a
loop; Adam. DKL: `ExactMarginalLogLikelihood` of the same deep kernel.

The published code was measured at 49 ms a guided and 30 ms a DKL step for n = 455 on one thread, where a 500 x 500
float64 Cholesky factorisation takes 2 ms: 24 and 15 factorisations. `exact_step.py` prints the same ratios for these.
"""

from __future__ import annotations

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.models.exact_prediction_strategies import prediction_strategy
from torch import Tensor, nn

#: The published start of the noise.
NOISE_START = 0.0174


class DeepExactGP(gpytorch.models.ExactGP):
    """A network under an RBF kernel, as GPyTorch's documentation writes it."""

    def __init__(
        self, rows: Tensor, targets: Tensor, likelihood: gpytorch.likelihoods.GaussianLikelihood, net: nn.Module
    ):
        super().__init__(rows, targets, likelihood)
        self.net = net
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Prior over the rows."""
        features = self.net(x)
        return MultivariateNormal(self.mean_module(features), self.covar_module(features))

    def predictive(self, rows: Tensor, targets: Tensor, observed: int) -> MultivariateNormal:
        """Predictive of the later rows given the first ``observed``, in training mode."""
        self.set_train_data(rows, targets, strict=False)
        prior = self(rows)
        mean, covariance = prior.loc, prior.lazy_covariance_matrix
        strategy = prediction_strategy(
            train_inputs=rows[:observed],
            train_prior_dist=MultivariateNormal(mean[:observed], covariance[:observed, :observed]),
            train_labels=targets[:observed],
            likelihood=self.likelihood,
        )
        parts = mean[observed:], covariance[observed:, observed:], covariance[observed:, :observed]
        return MultivariateNormal(*strategy.exact_prediction(*parts))


class GramKernel(gpytorch.kernels.Kernel):
    """A kernel known on a finite set: its inputs are row numbers, its values entries of a Gram matrix."""

    def __init__(self, gram: Tensor):
        super().__init__()
        self.gram = gram

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: object) -> Tensor:
        """Sub-matrix of the Gram."""
        first, second = x1.squeeze(-1).long(), x2.squeeze(-1).long()
        block = self.gram[first][:, second]
        return block.diagonal() if diag else block


class GuideExactGP(gpytorch.models.ExactGP):
    """The infinite network as an `ExactGP` over row numbers."""

    def __init__(
        self, numbers: Tensor, targets: Tensor, likelihood: gpytorch.likelihoods.GaussianLikelihood, gram: Tensor
    ):
        super().__init__(numbers, targets, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(GramKernel(gram))

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Prior over the rows of these numbers."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def make_model(rows: Tensor, targets: Tensor, net: nn.Module) -> DeepExactGP:
    """A deep kernel with the published noise start."""
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(rows)
    likelihood.noise = NOISE_START
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
    """A step of the published guided procedure.

    Args:
        rows: Training inputs.
        targets: Training targets.
        net: The student's network.
        guide_gram: The guide's Gram matrix, output scale included.
        guide_noise: The guide's noise variance.
    """

    def __init__(self, rows: Tensor, targets: Tensor, net: nn.Module, guide_gram: Tensor, guide_noise: float):
        self.rows, self.targets = rows, targets
        self.numbers = torch.arange(len(rows)).to(rows).unsqueeze(-1)
        self.model = make_model(rows, targets, net)
        likelihood = gpytorch.likelihoods.GaussianLikelihood().to(rows)
        likelihood.noise = guide_noise
        self.guide = GuideExactGP(self.numbers, targets, likelihood, guide_gram).to(rows)
        self.guide.covar_module.outputscale = 1.0
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-2)

    def step(self) -> None:
        """One gradient step on a fresh random split."""
        self.model.train()
        self.guide.eval()
        self.optimiser.zero_grad()
        n = len(self.rows)
        one = torch.sort(torch.randperm(n)[: n // 2])[0]
        two = torch.as_tensor([i for i in range(n) if i not in one])

        self.guide.set_train_data(self.numbers[one], self.targets[one], strict=False)
        with gpytorch.settings.lazily_evaluate_kernels(False):
            p = self.guide(self.numbers[two])
        with gpytorch.settings.detach_test_caches(False):
            q = self.model.predictive(
                torch.cat([self.rows[one], self.rows[two]]), torch.cat([self.targets[one], self.targets[two]]), len(one)
            )
        ell = -self.model.likelihood.expected_log_prob(self.targets[two], q)
        mq, vq, mp, vp = q.mean, q.variance, p.mean, p.variance
        kl = 0.5 * (torch.log(vp / vq) + (vq + (mq - mp) ** 2) / vp - 1)
        (ell.mean() + kl.mean()).backward()
        self.optimiser.step()
