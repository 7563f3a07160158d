"""Inducing points: exact where they can be, GPyTorch's marginals everywhere, and a start that fits the features."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

from gdkl.gp import (
    ExactPosterior,
    GPyTorchKernel,
    InducingPoints,
    cluster_centres,
    rbf_kernel,
    start_kernel,
)
from gdkl.gp.sparse import RELATIVE_JITTER
from gdkl.numerics import DataError

FLOAT = torch.float64


def rows(n, p=2, seed=0, members=1):
    return 2 * torch.randn(members, n, p, generator=torch.Generator().manual_seed(seed), dtype=FLOAT)


def kernel(members=1, outputs=1):
    made = GPyTorchKernel(rbf_kernel((members, outputs))).to(FLOAT)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.arange(parameter.numel()).reshape(parameter.shape))
    return made


def random_points(m=7, p=2, members=1, outputs=1, seed=3):
    points = InducingPoints(rows(m, p, seed, members), outputs)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        points.mean.copy_(torch.randn(points.mean.shape, generator=generator, dtype=FLOAT))
        points.raw_factor += 0.3 * torch.randn(points.raw_factor.shape, generator=generator, dtype=FLOAT)
    return points


@torch.no_grad()
def set_optimal(points, k, x, y, noise):
    """The q(v) that maximises the evidence bound of Gaussian targets (Titsias, 2009).

    With A = L⁻¹K_zx and Λ = I + AAᵀ/σ² it is N(Λ⁻¹Ay/σ², Λ⁻¹).
    """
    locations, variance = points.locations.unsqueeze(-3), noise[..., None, None]
    K = k.gram(locations)
    K = K + RELATIVE_JITTER[FLOAT] * K.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[..., None, None] * torch.eye(K.shape[-1])
    A = torch.linalg.solve_triangular(torch.linalg.cholesky(K), k.cross(locations, x.unsqueeze(-3)), upper=False)
    covariance = torch.linalg.inv(torch.eye(K.shape[-1]) + A @ A.mT / variance)
    points.mean.copy_((covariance @ A @ y.unsqueeze(-1) / variance).squeeze(-1))
    points.raw_factor.copy_(torch.linalg.cholesky(0.5 * (covariance + covariance.mT)))


@pytest.mark.parametrize(("members", "outputs"), [(1, 1), (2, 3)])
def test_inducing_points_at_the_rows_give_the_exact_posterior(members, outputs):
    x, new = rows(40, members=members), rows(25, seed=1, members=members)
    k = kernel(members, outputs)
    y = torch.sin(x.sum(dim=-1)).unsqueeze(1) * torch.arange(1, outputs + 1)[:, None]
    noise = torch.linspace(0.05, 0.2, members * outputs, dtype=FLOAT).reshape(members, outputs)
    points = InducingPoints(x, outputs)
    set_optimal(points, k, x, y, noise)
    exact = ExactPosterior.condition(k, x, y, noise, name="a test")
    sparse = points.posterior(k, noise)
    for features in (x, new):
        for mine, other in zip(sparse.marginals(features), exact.marginals(features), strict=True):
            torch.testing.assert_close(mine, other, atol=1e-6, rtol=0)
    mean, covariance = sparse.covariance(new)
    for mine, other in zip((mean, covariance), exact.covariance(new), strict=True):
        torch.testing.assert_close(mine, other, atol=1e-6, rtol=0)


def test_the_closed_form_maximises_the_evidence_bound():
    x, k = rows(30), kernel()
    y, noise = torch.sin(x.sum(dim=-1)).unsqueeze(1), torch.full((1, 1), 0.1, dtype=FLOAT)
    points = random_points()

    def bound():
        q = points.posterior(k, noise).marginals(x)
        fit = 0.5 * (((y - q.mean).square() + q.variance) / noise + noise.log()).sum()
        return fit + points.kl().sum()

    set_optimal(points, k, x, y, noise)
    gradients = torch.autograd.grad(bound(), [points.mean, points.raw_factor])
    assert max(float(gradient.tril().abs().max()) for gradient in gradients) < 1e-6


class Reference(gpytorch.models.ApproximateGP):
    def __init__(self, points, inner):
        outputs, m = points.mean.shape[1:]
        distribution = CholeskyVariationalDistribution(m, batch_shape=torch.Size([outputs])).to(FLOAT)
        jitter = RELATIVE_JITTER[FLOAT]
        strategy = VariationalStrategy(self, points.locations[0].detach(), distribution, jitter_val=jitter)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ZeroMean(batch_shape=torch.Size([outputs]))
        self.covar_module = inner
        distribution.variational_mean.data = points.mean[0].detach().clone()
        distribution.chol_variational_covar.data = points.raw_factor[0].detach().clone()
        strategy.variational_params_initialized.fill_(1)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_marginals_and_kl_are_gpytorchs():
    outputs = 3
    points, k = random_points(outputs=outputs), kernel(1, outputs)
    # GPyTorch's jitter is absolute, ours relative to the output scale.
    k.kernel.initialize(outputscale=torch.ones(1, outputs, dtype=FLOAT))
    inner = rbf_kernel((outputs,)).to(FLOAT)
    inner.base_kernel.initialize(lengthscale=k.kernel.base_kernel.lengthscale[0])
    inner.initialize(outputscale=k.kernel.outputscale[0])
    reference = Reference(points, inner).eval()
    x = rows(20, seed=5)
    with torch.no_grad():
        expected = reference(x[0])
        q = points.posterior(k, torch.ones(1, outputs, dtype=FLOAT)).marginals(x)
    torch.testing.assert_close(q.mean[0], expected.mean, atol=1e-6, rtol=0)
    torch.testing.assert_close(q.variance[0], expected.variance, atol=1e-6, rtol=0)
    torch.testing.assert_close(points.kl()[0], reference.variational_strategy.kl_divergence(), atol=1e-6, rtol=0)


def test_gradients_reach_every_part():
    points, k = random_points(m=4), kernel()
    x = rows(5).requires_grad_()
    parts = [points.locations, points.mean, points.raw_factor, *k.parameters()]

    def value(features, *given):
        state = {"locations": given[0], "mean": given[1], "raw_factor": given[2]}
        function = torch.func.functional_call

        class Wrapped(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.points, self.kernel = points, k

            def forward(self, features):
                q = self.points.posterior(self.kernel, torch.ones(1, 1, dtype=FLOAT)).marginals(features)
                return q.mean, q.variance

        names = [name for name, _ in k.named_parameters()]
        parameters = {f"points.{name}": tensor for name, tensor in state.items()}
        parameters |= {f"kernel.{name}": tensor for name, tensor in zip(names, given[3:], strict=True)}
        return function(Wrapped(), parameters, (features,))

    assert torch.autograd.gradcheck(value, (x, *parts), atol=1e-6)


def test_centres_cover_the_clusters_and_are_never_equal():
    centres = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]], dtype=FLOAT)
    features = (centres.repeat(20, 1) + 0.01 * torch.randn(60, 2, dtype=FLOAT)).expand(2, -1, -1)
    found = cluster_centres(features, 3, seed=0)
    assert torch.cdist(found[0], centres).min(dim=0).values.max() < 0.1
    repeated = torch.ones(1, 30, 2, dtype=FLOAT) * torch.arange(2)[:, None].repeat(15, 1)
    apart = cluster_centres(repeated, 5, seed=0)[0]
    assert torch.pdist(apart).min() > 0


def test_more_inducing_points_than_rows_are_refused():
    with pytest.raises(DataError, match="n_inducing=5 is more than the 4 rows"):
        cluster_centres(rows(4), 5, seed=0)


def test_the_lengthscale_starts_at_the_mean_distance():
    features, k = rows(50), kernel()
    start_kernel(k, features, output_scale=2.5)
    expected = torch.pdist(features[0]).mean()
    torch.testing.assert_close(k.kernel.base_kernel.lengthscale.squeeze(), expected)
    assert k.kernel.outputscale.item() == pytest.approx(2.5)
    other = GPyTorchKernel(gpytorch.kernels.MaternKernel())
    start_kernel(other, features, output_scale=2.5)
    assert other.kernel.lengthscale.item() == pytest.approx(0.6931, abs=1e-3)
