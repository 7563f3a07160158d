"""Exact posteriors against the textbook."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dense
from gdkl.gp import (
    ExactPosterior,
    GPyTorchKernel,
    Noise,
    condition,
    rbf_kernel,
    rbf_split_posterior,
    squared_distances,
    take_rows,
    take_targets,
)
from gdkl.gp.rbf import leading_rbf, scaled_rbf
from gdkl.numerics import OptionError


def _random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@given(n1=st.integers(1, 12), n2=st.integers(1, 8), noise=st.floats(1e-4, 1.0), seed=st.integers(0, 1000))
def test_condition_is_the_textbook_posterior(n1, n2, noise, seed):
    x1, x2, y1 = _random(n1, 3, seed=seed), _random(n2, 3, seed=seed + 1), _random(n1, seed=seed + 2)
    x2[0] = x1[0]  # a held-out row equal to an observed one
    a, b = x1.numpy(), x2.numpy()
    mean, covariance = dense.posterior(dense.rbf(a, a), dense.rbf(b, a), dense.rbf(b, b), y1.numpy(), noise)
    K = torch.as_tensor(np.concatenate([dense.rbf(a, a), dense.rbf(a, b)], axis=1))
    q = condition(K, torch.ones(n2, dtype=torch.float64), y1, torch.tensor(noise, dtype=torch.float64), name="K")
    np.testing.assert_allclose(q.mean, mean, atol=1e-9)
    np.testing.assert_allclose(q.variance, np.diag(covariance), atol=1e-9)


def test_exact_posterior_marginals_and_covariance_are_the_textbook_ones():
    members, outputs, n, m = 2, 3, 15, 6
    features, new, targets = _random(members, n, 4), _random(members, m, 4, seed=1), _random(members, outputs, n)
    kernel = rbf_kernel((members, outputs)).double()
    with torch.no_grad():
        kernel.outputscale = torch.linspace(0.5, 2, members * outputs).reshape(members, outputs).double()
        kernel.base_kernel.lengthscale = torch.linspace(0.8, 3, members * outputs).reshape(members, outputs, 1, 1)
    noise = torch.linspace(0.01, 0.3, members * outputs, dtype=torch.float64).reshape(members, outputs)
    posterior = ExactPosterior.condition(GPyTorchKernel(kernel), features, targets, noise, name="K")
    marginals = posterior.marginals(new)
    mean, covariance = posterior.covariance(new)
    assert mean.shape == (members, outputs, m)
    assert covariance.shape == (members, outputs, m, m)
    for i in range(members):
        for o in range(outputs):
            a, b = features[i].numpy(), new[i].numpy()
            options = {
                "lengthscale": float(kernel.base_kernel.lengthscale[i, o].detach()),
                "scale": float(kernel.outputscale[i, o].detach()),
            }
            expected_mean, expected_covariance = dense.posterior(
                dense.rbf(a, a, **options),
                dense.rbf(b, a, **options),
                dense.rbf(b, b, **options),
                targets[i, o].numpy(),
                float(noise[i, o]),
            )
            np.testing.assert_allclose(marginals.mean[i, o], expected_mean, atol=1e-9)
            np.testing.assert_allclose(mean[i, o], expected_mean, atol=1e-9)
            np.testing.assert_allclose(covariance[i, o], expected_covariance, atol=1e-9)
            np.testing.assert_allclose(marginals.variance[i, o], np.diag(expected_covariance), atol=1e-9)


@pytest.mark.parametrize("ard", [None, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scaled_rbf_equals_gpytorch(ard, dtype):
    kernel = rbf_kernel((2, 3), ard_num_dims=ard).to(dtype)
    with torch.no_grad():
        kernel.base_kernel.raw_lengthscale.uniform_(-1, 2)
        kernel.raw_outputscale.uniform_(-1, 1)
    x1, x2 = _random(2, 1, 7, 4).to(dtype), _random(2, 1, 5, 4, seed=1).to(dtype)
    ours = GPyTorchKernel(kernel)
    tolerance = {"atol": 1e-5 if dtype is torch.float32 else 1e-12, "rtol": 0}
    torch.testing.assert_close(ours.cross(x1, x2), kernel(x1, x2).to_dense(), **tolerance)
    torch.testing.assert_close(ours.gram(x1), kernel(x1).to_dense(), **tolerance)
    torch.testing.assert_close(ours.diagonal(x1), kernel(x1, diag=True), **tolerance)


@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gram_is_exactly_symmetric_with_an_exact_diagonal(scale, dtype):
    x = (scale * _random(1, 1, 30, 5)).to(dtype)
    x[..., 7, :] = x[..., 3, :]
    kernel = GPyTorchKernel(rbf_kernel((1, 2)).to(dtype))
    K = kernel.gram(x)
    assert torch.equal(K, K.mT)
    assert torch.equal(K.diagonal(dim1=-2, dim2=-1), kernel.diagonal(x))


def test_other_gpytorch_kernels_go_through_gpytorch():
    base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5, active_dims=[0, 2]))
    kernel = GPyTorchKernel((base + gpytorch.kernels.LinearKernel()).double())
    x1, x2 = _random(4, 3), _random(5, 3, seed=1)
    torch.testing.assert_close(kernel.cross(x1, x2), kernel.kernel(x1, x2).to_dense())
    torch.testing.assert_close(kernel.diagonal(x1), kernel.gram(x1).diagonal())


def test_active_dims_of_an_rbf_are_respected():
    kernel = GPyTorchKernel(gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(active_dims=[1])).double())
    x = _random(4, 3)
    moved = x.clone()
    moved[:, 0] += 5
    torch.testing.assert_close(kernel.gram(x), kernel.gram(moved))


def test_squared_distances_keep_their_digits_far_from_the_origin():
    x = _random(6, 3)
    torch.testing.assert_close(squared_distances(x + 1e6), squared_distances(x), rtol=1e-8, atol=1e-8)
    expected = torch.cdist(x, x).square()
    torch.testing.assert_close(squared_distances(x, x), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("symmetric", [True, False])
def test_gradcheck_of_the_rbf_with_duplicate_rows_and_shared_features(columns, symmetric):
    """Two members and two outputs: the outputs share a member's features, each has its own scales."""
    x1, x2 = _random(2, 1, 5, 3), _random(2, 1, 4, 3, seed=1)
    x1[..., 1, :] = x1[..., 0, :]
    x2[..., 0, :] = x1[..., 0, :]
    lengthscale = _random(2, 2, 1, columns, seed=2).exp().requires_grad_()
    scale = _random(2, 2, seed=3).exp().requires_grad_()
    x1.requires_grad_(), x2.requires_grad_()

    def kernel(x1, x2, lengthscale, scale):
        return scaled_rbf(x1, None if symmetric else x2, lengthscale, scale)

    assert torch.autograd.gradcheck(kernel, (x1, x2, lengthscale, scale))


@pytest.mark.parametrize("columns", [1, 3])
def test_the_leading_block_is_a_part_of_the_gram_and_passes_gradcheck(columns):
    x = _random(2, 1, 6, 3)
    x[..., 1, :] = x[..., 0, :]
    x[..., 5, :] = x[..., 0, :]
    lengthscale = _random(2, 2, 1, columns, seed=2).exp().requires_grad_()
    scale = _random(2, 2, seed=3).exp().requires_grad_()
    x.requires_grad_()
    K = scaled_rbf(x, None, lengthscale, scale)
    torch.testing.assert_close(leading_rbf(x, 4, lengthscale, scale), K[..., :4, :], rtol=0, atol=1e-14)
    assert torch.equal(leading_rbf(x, 4, lengthscale, scale)[0, 0].diagonal(), scale[0, 0].expand(4))
    assert torch.autograd.gradcheck(lambda *inputs: leading_rbf(inputs[0], 4, *inputs[1:]), (x, lengthscale, scale))


@pytest.mark.parametrize("noise", [0.3, 1e-13])
def test_the_rbf_split_posterior_is_the_two_steps_in_one(noise):
    """In value and gradient, with shared features, duplicate rows and, at no noise, variances at their floor."""
    x = _random(2, 1, 7, 3)
    x[..., 5, :] = x[..., 0, :]
    y1 = _random(2, 2, 4, seed=4)
    start = [x, _random(2, 2, 1, 1, seed=2).exp(), _random(2, 2, seed=3).exp(), torch.full((2, 2), noise).double()]
    weights = _random(2, 2, 2, 3, seed=5)
    results = []
    for fused in (True, False):
        x, lengthscale, scale, sigma2 = inputs = [value.clone().requires_grad_() for value in start]
        if fused:
            q = rbf_split_posterior(x, y1, lengthscale, scale, sigma2, name="K")
        else:
            k22 = scale.unsqueeze(-1).expand(2, 2, 3)
            q = condition(leading_rbf(x, 4, lengthscale, scale), k22, y1, sigma2, name="K")
        gradients = torch.autograd.grad((weights[0] * q.mean + weights[1] * q.variance).sum(), inputs)
        results.append((*q, *gradients))
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-10)


def test_a_step_of_a_few_hundred_rows_is_the_plain_reading():
    """Several blocks in the product, against autograd through torch's own operations."""
    n, n1 = 420, 300
    x, y1, weights = _random(1, 1, n, 5), _random(1, 1, n1, seed=1), _random(2, 1, 1, n - n1, seed=2)
    start = [x, torch.tensor([[[[2.0]]]]).double(), torch.tensor([[1.5]]).double(), torch.tensor([[0.02]]).double()]
    results = []
    for plain in (False, True):
        x, lengthscale, scale, noise = inputs = [value.clone().requires_grad_() for value in start]
        if plain:
            distances = (x.unsqueeze(-2) - x[..., None, :n1, :]).square().sum(dim=-1)
            K = scale[..., None, None] * torch.exp(-0.5 * distances / lengthscale.square())
            C = K[..., :n1, :] + noise[..., None, None] * torch.eye(n1, dtype=torch.float64)
            A = torch.linalg.solve_triangular(torch.linalg.cholesky(C), K[..., n1:, :].mT, upper=False)
            v = torch.linalg.solve_triangular(torch.linalg.cholesky(C), y1.unsqueeze(-1), upper=False)
            mean, variance = (A.mT @ v).squeeze(-1), scale.unsqueeze(-1) - A.square().sum(dim=-2)
        else:
            mean, variance = rbf_split_posterior(x, y1, lengthscale, scale, noise, name="K")
        gradients = torch.autograd.grad((weights[0] * mean + weights[1] * variance).sum(), inputs)
        results.append((mean, variance, *gradients))
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10 * float(expected.detach().abs().max()))


@pytest.mark.parametrize(("members", "outputs"), [(1, 1), (1, 2), (2, 1)])
def test_gradcheck_of_the_split_posterior(members, outputs):
    x, y1 = _random(members, 1, 7, 3), _random(members, outputs, 4, seed=1)
    x[..., 5, :] = x[..., 0, :]
    shape = (members, outputs)
    inputs = [x, _random(*shape, 1, 1, seed=2).exp(), _random(*shape, seed=3).exp(), _random(*shape, seed=4).exp()]

    def function(x, *parameters):
        return tuple(rbf_split_posterior(x, y1, *parameters, name="K"))

    assert torch.autograd.gradcheck(function, [value.requires_grad_() for value in inputs])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_far_apart_have_no_covariance_and_no_gradient(dtype):
    """Exponents far below what a number can hold: nothing but the prior is left, and nothing is infinite."""
    x = (1e3 * _random(1, 1, 6, 3)).to(dtype).requires_grad_()
    one = torch.ones(1, 1, dtype=dtype)
    q = rbf_split_posterior(x, torch.ones(1, 1, 4, dtype=dtype), one[..., None, None], 2 * one, one, name="K")
    (gradient,) = torch.autograd.grad(q.mean.sum() + q.variance.sum(), x)
    torch.testing.assert_close(q.variance, torch.full_like(q.variance, 2.0))
    assert float(q.mean.detach().abs().max()) < 1e-30
    assert float(gradient.abs().max()) < 1e-30


def test_the_leading_block_of_any_kernel_comes_from_gpytorch():
    kernel = GPyTorchKernel(gpytorch.kernels.MaternKernel(nu=2.5).double())
    x = _random(5, 3)
    torch.testing.assert_close(kernel.leading(x, 2), kernel.gram(x)[:2])


def test_gradients_of_the_rbf_keep_their_digits_far_from_the_origin():
    x = _random(1, 1, 6, 3)
    near, far = ((x + shift).requires_grad_() for shift in (0.0, 1e5))
    for rows in (near, far):
        scaled_rbf(rows, None, torch.ones(1, 1, 1, 1).double(), torch.ones(1, 1).double())[..., 0, :].sum().backward()
    torch.testing.assert_close(far.grad, near.grad, rtol=1e-6, atol=1e-8)


def test_take_picks_each_members_own_rows():
    rows, targets = _random(2, 5, 3), _random(2, 4, 5)
    index = torch.tensor([[3, 1], [0, 4]])
    assert torch.equal(take_rows(rows, index)[1], rows[1, [0, 4]])
    assert torch.equal(take_targets(targets, index)[0], targets[0][:, [3, 1]])
    several = torch.stack([index, index.flip(0)])
    assert torch.equal(take_targets(targets, several)[1, 0], targets[0][:, [0, 4]])
    # One set of targets, an index of its own for each member.
    shared = take_targets(targets[:1], index)
    assert torch.equal(shared[1], targets[0][:, index[1]])


def test_noise_starts_where_told_and_never_falls_below_its_floor():
    noise = Noise((2, 1), start=0.3, floor=1e-3)
    np.testing.assert_allclose(noise().detach(), 0.3)
    with torch.no_grad():
        noise.raw.fill_(-1e3)
    assert bool((noise() >= 1e-3).all())
    with pytest.raises(OptionError, match="above its floor"):
        Noise((1,), start=1e-5)


@pytest.mark.parametrize("by_row", [False, True])
def test_noise_row_by_row_and_its_gradient_are_those_of_autograd(by_row):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 1, 9, 3, dtype=torch.float64, generator=generator)
    y = torch.randn(2, 2, 5, dtype=torch.float64, generator=generator)
    noise = torch.rand(2, 2, *[5] * by_row, dtype=torch.float64, generator=generator) + 0.1
    lengthscale, scale = torch.full((2, 2, 1, 1), 1.3).double(), torch.full((2, 2), 0.8).double()
    K = leading_rbf(x, 9, lengthscale, scale)
    k22 = scale.unsqueeze(-1)

    def dense(noise):
        C = K[..., :5, :5] + torch.diag_embed(noise if by_row else noise.unsqueeze(-1).expand(2, 2, 5))
        W = torch.linalg.solve(C, K[..., :5, 5:])
        return (W * y.unsqueeze(-1)).sum(-2), k22 - (K[..., :5, 5:] * W).sum(-2)

    ways = {
        "dense": dense,
        "rbf": lambda noise: rbf_split_posterior(x, y, lengthscale, scale, noise, name="K"),
        "any": lambda noise: condition(K[..., :5, :], k22, y, noise, name="K"),
    }
    found = {}
    for name, way in ways.items():
        own = noise.clone().requires_grad_()
        mean, variance = way(own)
        (mean.sin().sum() + variance.log().sum()).backward()
        found[name] = mean.detach(), variance.detach(), own.grad
    for name in ("rbf", "any"):
        for ours, wanted in zip(found[name], found["dense"], strict=True):
            torch.testing.assert_close(ours, wanted, rtol=1e-8, atol=1e-10)


def _conditioned(n=12, members=2, outputs=2):
    features, targets = _random(members, n, 3), _random(members, outputs, n, seed=1)
    noise = torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=torch.float64)[:members, :outputs]
    own = _random(members, outputs, n, seed=2).square()
    kernel = GPyTorchKernel(rbf_kernel((members, outputs)).double().requires_grad_(False))
    posterior = ExactPosterior.condition(kernel, features, targets, noise, row_noise=own, name="K")
    return posterior, features, targets, noise, own


def test_a_posterior_knows_its_targets_and_the_noise_of_each_row():
    posterior, _, targets, noise, own = _conditioned()
    torch.testing.assert_close(posterior.targets, targets)
    torch.testing.assert_close(posterior.row_noise, noise.unsqueeze(-1) + own)


def test_rows_left_out_are_predicted_as_by_a_posterior_without_them():
    posterior, features, targets, noise, own = _conditioned()
    found = posterior.left_out()
    for row in range(targets.shape[-1]):
        others = torch.tensor([index for index in range(targets.shape[-1]) if index != row])
        without = ExactPosterior.condition(
            posterior.kernel, features[:, others], targets[..., others], noise, row_noise=own[..., others], name="K"
        )
        expected = without.marginals(features[:, row : row + 1])
        torch.testing.assert_close(found.mean[..., row : row + 1], expected.mean)
        torch.testing.assert_close(found.variance[..., row : row + 1], expected.variance)
        taken = posterior.take(others, name="K").marginals(features[:, row : row + 1])
        torch.testing.assert_close(taken, expected)


def test_extended_posteriors_of_a_batch_are_those_one_by_one():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(2, 6, 3, dtype=torch.float64, generator=generator)
    y = torch.randn(2, 2, 6, dtype=torch.float64, generator=generator)
    noise = torch.rand(2, 2, dtype=torch.float64, generator=generator) + 0.1
    kernel = GPyTorchKernel(rbf_kernel((2, 2))).double()
    known = ExactPosterior.condition(kernel, rows, y, noise, name="a test's")
    new = torch.randn(5, 4, 2, 3, 3, dtype=torch.float64, generator=generator)
    new_y = torch.randn(5, 4, 2, 2, 3, dtype=torch.float64, generator=generator)
    new_noise = torch.rand(5, 4, 2, 2, 3, dtype=torch.float64, generator=generator)
    extended = known.extend(new, new_y, row_noise=new_noise, name="a test's")
    asked = torch.randn(2, 7, 3, dtype=torch.float64, generator=generator)
    for i, j in ((0, 0), (4, 3)):
        both = torch.cat([rows, new[i, j]], dim=1), torch.cat([y, new_y[i, j]], dim=-1)
        own = torch.cat([torch.zeros(2, 2, 6).double(), new_noise[i, j]], dim=-1)
        whole = ExactPosterior.condition(kernel, *both, noise, row_noise=own, name="a test's")
        torch.testing.assert_close(extended.factor[i, j], whole.factor)
        torch.testing.assert_close(extended.weights[i, j], whole.weights)
        found, expected = extended.marginals(asked.expand(5, 4, -1, -1, -1)), whole.marginals(asked)
        torch.testing.assert_close(found.mean[i, j], expected.mean)
        torch.testing.assert_close(found.variance[i, j], expected.variance)


def test_gradients_flow_through_an_extension():
    rows = torch.randn(1, 4, 2, dtype=torch.float64)
    kernel = GPyTorchKernel(rbf_kernel()).double().requires_grad_(False)
    noise = torch.full((1, 1), 0.1, dtype=torch.float64)
    known = ExactPosterior.condition(kernel, rows, torch.randn(1, 1, 4).double(), noise, name="a test's")

    def weights(new, new_y):
        return known.extend(new, new_y, name="a test's").weights

    new = torch.randn(1, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(weights, (new, torch.randn(1, 1, 2, dtype=torch.float64, requires_grad=True)))
