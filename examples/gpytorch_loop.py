"""
The guided objective in your own GPyTorch loop
==============================================

The model and the first loop are those of any deep kernel in GPyTorch. The second loop trains the same model beside a
guide: lines marked ``# +`` are all that it needs more.
"""

# %%
# Noisy values of a function of two of five columns, and a Gaussian process over the features of a network.
import gpytorch
import torch

from gdkl import infinite  # +
from gdkl.gp import Marginals  # +
from gdkl.guide import as_kernel_function, fit_guide  # +
from gdkl.objectives import gaussian_term, guided  # +
from gdkl.training import GuidedSplits, SplitSampler  # +

STEPS = 150


def data(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A noisy function of two of five columns."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 5, dtype=torch.float64, generator=generator)
    noise = torch.randn(rows, dtype=torch.float64, generator=generator)
    return x, torch.sin(2 * x[:, 0]) * x[:, 1] + 0.3 * noise


class DeepKernelGP(gpytorch.models.ExactGP):
    """A Gaussian process over the features of a network."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: gpytorch.likelihoods.GaussianLikelihood):
        super().__init__(x, y, likelihood)
        self.network = torch.nn.Sequential(
            torch.nn.Linear(5, 50), torch.nn.ReLU(), torch.nn.Linear(50, 50), torch.nn.ReLU(), torch.nn.Linear(50, 10)
        )
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at rows."""
        features = self.network(x)
        return gpytorch.distributions.MultivariateNormal(self.mean_module(features), self.covar_module(features))


def build(x: torch.Tensor, y: torch.Tensor) -> tuple[DeepKernelGP, torch.optim.Optimizer]:
    """The same start for both loops."""
    torch.manual_seed(0)
    model = DeepKernelGP(x, y, gpytorch.likelihoods.GaussianLikelihood()).double()
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


# %%
# By marginal likelihood.
def train_by_evidence(x: torch.Tensor, y: torch.Tensor) -> DeepKernelGP:
    """Train on the evidence of all rows."""
    model, optimiser = build(x, y)
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    for _ in range(STEPS):
        optimiser.zero_grad()
        loss = -evidence(model(x), y)
        loss.backward()
        optimiser.step()
    return model.eval()


# %%
# Guided: each step holds out half of the rows. The student predicts them from the other half, and its predictions must
# explain the targets and stay near those of the guide, an infinitely wide network.
def train_guided(x: torch.Tensor, y: torch.Tensor) -> DeepKernelGP:
    """Train on the guided objective over random splits."""
    model, optimiser = build(x, y)
    guide = fit_guide(as_kernel_function(infinite.mlp()), x[None], y[None, None])  # +
    splits = GuidedSplits(guide, SplitSampler(len(x), members=1, seed=0))  # +
    for step in range(STEPS):
        optimiser.zero_grad()
        (observed, held_out), p = splits(step)  # +
        model.eval().set_train_data(x[observed[0]], y[observed[0]], strict=False)  # +
        with gpytorch.settings.detach_test_caches(False):  # +
            f = model(x[held_out[0]])  # +
        q = Marginals(f.mean[None, None], f.variance[None, None])  # +
        loss = guided(q, p, gaussian_term(q, y[held_out], model.likelihood.noise), beta=1.0).value.sum()  # +
        loss.backward()
        optimiser.step()
    model.set_train_data(x, y, strict=False)  # +
    return model.eval()


# %%
# What each says of new rows.
def score(model: DeepKernelGP, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    """Mean log-likelihood of new rows, and the share of them in their 90 % interval."""
    with torch.no_grad():
        p = model.likelihood(model(x))
    log_likelihood = torch.distributions.Normal(p.mean, p.stddev).log_prob(y).mean()
    return float(log_likelihood), float(((y - p.mean).abs() < 1.645 * p.stddev).double().mean())


def main() -> dict[str, tuple[float, float]]:
    """Train both ways and print their scores."""
    x, y = data(100, seed=0)
    x_test, y_test = data(500, seed=1)
    y, y_test = (y - y.mean()) / y.std(), (y_test - y.mean()) / y.std()
    found: dict[str, tuple[float, float]] = {}
    for name, train in (("marginal likelihood", train_by_evidence), ("guided", train_guided)):
        found[name] = score(train(x, y), x_test, y_test)
        print(f"{name}: log-likelihood {found[name][0]:.2f}, {found[name][1]:.0%} in their 90 % interval")
    return found


if __name__ == "__main__":
    main()
