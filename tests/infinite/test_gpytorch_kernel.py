"""The GPyTorch kernel: GPyTorch's own suite, gradients to variances, GPyTorch and BoTorch models."""

from __future__ import annotations

import unittest
from typing import Any

import gpytorch
import pytest
import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase

import gdkl.infinite as inf
from gdkl.numerics import DataError, OptionError


class TestNNGP(unittest.TestCase, BaseKernelTestCase):
    def create_kernel_no_ard(self, **kwargs: Any) -> inf.InfiniteWidthKernel:
        return inf.InfiniteWidthKernel(inf.mlp(hidden_layers=2), **kwargs)


class TestNTK(unittest.TestCase, BaseKernelTestCase):
    def create_kernel_no_ard(self, **kwargs: Any) -> inf.InfiniteWidthKernel:
        return inf.InfiniteWidthKernel(inf.mlp(hidden_layers=1, activation="erf"), "ntk", **kwargs)


CONV = inf.Sequential(
    inf.Conv2d(3, padding=1, weight_var=1.5, bias_var=0.1),
    inf.Residual(inf.Sequential(inf.ReLU(), inf.Conv2d(1, weight_var=0.7, bias_var=0.2)), inf.Conv2d(1)),
    inf.AvgPool2d(2),
    inf.GELU(),
    inf.Flatten(),
    inf.Linear(1.2, 0.3),
)


def test_values_are_the_networks():
    x = torch.randn(5, 3, dtype=torch.float64)
    net = inf.mlp(hidden_layers=2)
    kernel = inf.InfiniteWidthKernel(net).double()
    kernel.weight_var, kernel.bias_var = 1.6, 0.2
    torch.testing.assert_close(kernel(x).to_dense(), net.kernel(x), rtol=1e-12, atol=0)
    torch.testing.assert_close(kernel(x, x[:2]).to_dense(), net.kernel(x, x[:2]), rtol=1e-12, atol=0)
    torch.testing.assert_close(kernel(x, diag=True), net.diagonal(x), rtol=1e-12, atol=0)
    with torch.no_grad():
        torch.testing.assert_close(kernel(x).to_dense(), net.kernel(x), rtol=1e-12, atol=0)


def test_diagonal_of_two_different_sets():
    for net, d in ((inf.mlp(2), 3), (CONV, 2 * 4 * 4)):
        x1, x2 = torch.randn(4, d, dtype=torch.float64), torch.randn(4, d, dtype=torch.float64)
        shape = None if d == 3 else (2, 4, 4)
        for kind in ("nngp", "ntk"):
            kernel = inf.InfiniteWidthKernel(net, kind, input_shape=shape).double()
            expected = kernel(x1, x2).to_dense().diagonal()
            torch.testing.assert_close(kernel(x1, x2, diag=True), expected)
            with torch.no_grad():
                torch.testing.assert_close(kernel(x1, x2, diag=True), expected)


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
@pytest.mark.parametrize("image", [False, True])
def test_gradcheck_variances(kind: str, image: bool):
    net = CONV if image else inf.mlp(hidden_layers=2, activation="gelu")
    x = torch.randn(3, 2 * 4 * 4 if image else 3, dtype=torch.float64)
    kernel = inf.InfiniteWidthKernel(net, kind, input_shape=(2, 4, 4) if image else None).double()
    other = torch.cat([x[:1], torch.randn_like(x[:1])]) if kind == "nngp" or not image else torch.randn_like(x[:2])

    def kernels(weights: torch.Tensor, biases: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        call = {"raw_weight_var": weights, "raw_bias_var": biases}
        return tuple(
            torch.func.functional_call(kernel, call, arguments, {"diag": diag})
            for arguments, diag in (((x, x), False), ((x, other), False), ((x, x), True))
        )

    def dense(*arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(k if isinstance(k, torch.Tensor) else k.to_dense() for k in kernels(*arguments))

    weights = kernel.raw_weight_var.detach().clone().requires_grad_()
    biases = kernel.raw_bias_var.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(dense, (weights, biases, x.requires_grad_()), fast_mode=image)


def test_batch_of_kernels():
    kernel = inf.InfiniteWidthKernel(inf.mlp(hidden_layers=1), batch_shape=torch.Size([2]))
    kernel.weight_var = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    x = torch.randn(5, 3)
    K = kernel(x).to_dense()
    assert K.shape == (2, 5, 5)
    for i, (w1, w2) in enumerate(((1.0, 2.0), (3.0, 4.0))):
        net = inf.Sequential(inf.Linear(w1, 0.2), inf.ReLU(), inf.Linear(w2, 0.2))
        torch.testing.assert_close(K[i], net.kernel(x))


def test_zero_variances_stay_zero():
    kernel = inf.InfiniteWidthKernel(inf.mlp(hidden_layers=1, bias_var=0.0))
    assert kernel.bias_var.shape == (0,)
    x = torch.zeros(2, 3)
    assert torch.equal(kernel(x).to_dense(), torch.zeros(2, 2))


def test_variances_can_be_frozen_and_constrained():
    kernel = inf.InfiniteWidthKernel(inf.mlp(), learn=False)
    assert not any(p.requires_grad for p in kernel.parameters())
    bounded = inf.InfiniteWidthKernel(inf.mlp(), weight_constraint=gpytorch.constraints.Interval(0.5, 3.0))
    with torch.no_grad():
        bounded.raw_weight_var += 100.0
    assert bounded.weight_var.max().item() <= 3.0


def test_last_dim_is_batch():
    kernel = inf.InfiniteWidthKernel(inf.mlp(hidden_layers=1), batch_shape=torch.Size([2]))
    x = torch.randn(2, 5, 3)
    with pytest.warns(DeprecationWarning, match="last_dim"):
        K = kernel(x, last_dim_is_batch=True).to_dense()
    assert K.shape == (2, 3, 5, 5)
    torch.testing.assert_close(K[1, 2], kernel[1](x[1, :, 2:]).to_dense())


def test_bad_arguments():
    with pytest.raises(OptionError, match="network"):
        inf.InfiniteWidthKernel("relu")
    with pytest.raises(OptionError, match="input_shape"):
        inf.InfiniteWidthKernel(CONV, input_shape=(4, 4))
    with pytest.raises(DataError, match="images"):
        inf.InfiniteWidthKernel(CONV, input_shape=(2, 4, 4))(torch.ones(2, 31)).to_dense()


def test_exact_gp_learns():
    torch.manual_seed(0)
    x = torch.linspace(-2, 2, 25, dtype=torch.float64)[:, None]
    y = torch.sin(2 * x[:, 0])

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood: gpytorch.likelihoods.GaussianLikelihood):
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ZeroMean()
            self.kernel = inf.InfiniteWidthKernel(inf.mlp(hidden_layers=2)).double()

        def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    model = Model(likelihood)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    losses = []
    for _ in range(40):
        optimiser.zero_grad()
        loss = -mll(model(x), y)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.5
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        mean = model(x + 0.05).mean
    assert (mean - torch.sin(2 * (x[:, 0] + 0.05))).abs().mean() < 0.1


def test_botorch_fits_and_optimises_an_acquisition():
    torch.manual_seed(0)
    x = torch.rand(12, 2, dtype=torch.float64)
    y = -((x - 0.4) ** 2).sum(1, keepdim=True)
    model = SingleTaskGP(x, y, covar_module=inf.InfiniteWidthKernel(inf.mlp(hidden_layers=2)))
    fit_gpytorch_mll(gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model))
    acquisition = UpperConfidenceBound(model, beta=2.0)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    candidate, value = optimize_acqf(acquisition, bounds, q=1, num_restarts=4, raw_samples=128)
    assert candidate.shape == (1, 2)
    assert torch.isfinite(value)
    # What a random search finds is no better: the gradient has led somewhere.
    grid = torch.rand(200, 1, 2, dtype=torch.float64)
    assert value >= acquisition(grid).max() - 1e-3
