"""The solver seam against plain dense algebra in NumPy: batched, noise for all rows or for each, in both precisions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel

import dense
from gdkl.gp import ExactPosterior, GPyTorchKernel, Solver, condition, rbf_kernel, rbf_split_posterior
from gdkl.numerics import NotPositiveDefiniteError

TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-10}
N, M = 9, 5


def problem(batch=(2, 3), dtype=torch.float64, per_row=True, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((*batch, N + M, 3))
    K = np.exp(-0.5 * ((x[..., :, None, :] - x[..., None, :, :]) ** 2).sum(-1))
    noise = rng.uniform(0.1, 0.5, (*batch, N if per_row else 1))
    return [torch.as_tensor(value, dtype=dtype) for value in (K, noise, rng.standard_normal((*batch, N)))]


def textbook(K, noise, y):
    """Means and variances of the last rows given the first, for each batch entry by an inverse."""
    mean, variance = np.empty((*K.shape[:-2], M)), np.empty((*K.shape[:-2], M))
    for entry in np.ndindex(*K.shape[:-2]):
        k = K[entry].double().numpy()
        inverse = np.linalg.inv(k[:N, :N] + np.diag(np.broadcast_to(noise[entry].double().numpy(), N)))
        mean[entry] = k[N:, :N] @ inverse @ y[entry].double().numpy()
        variance[entry] = np.diag(k[N:, N:] - k[N:, :N] @ inverse @ k[:N, N:])
    return mean, variance


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("per_row", [True, False])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("prepared", [True, False])
def test_marginals_are_the_textbook_ones(batch, per_row, dtype, prepared):
    K, noise, y = problem(batch, dtype, per_row)
    before = K.clone()
    solver = Solver.of(K[..., :N, :N], noise, name="a test")
    solver = solver.prepared() if prepared else solver
    p = solver.marginals(K[..., :N, N:], K.diagonal(dim1=-2, dim2=-1)[..., N:], y)
    assert torch.equal(K, before)
    assert p.mean.dtype == dtype
    for ours, expected in zip(p, textbook(K, noise, y), strict=True):
        np.testing.assert_allclose(ours, expected, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("per_row", [True, False])
def test_one_factor_may_serve_several_outputs(per_row):
    K, noise, y = problem((2, 1), per_row=per_row)
    y = torch.cat([y, y.flip(-1), 2 * y], dim=1)
    solver = Solver.of(K[..., :N, :N], noise, name="a test")
    k22 = K.diagonal(dim1=-2, dim2=-1)[..., N:]
    stretched = [value.expand(2, 3, *value.shape[2:]) for value in (K, noise)]
    each = Solver.of(stretched[0][..., :N, :N], stretched[1], name="a test")
    shared, alone = (s.marginals(K[..., :N, N:], k22, y) for s in (solver, each))
    assert shared.variance.shape == (2, 3, M)
    for ours, expected in (*zip(shared, alone, strict=True), *zip(solver.left_out(y), each.left_out(y), strict=True)):
        torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(solver.weights(y), each.weights(y))


def test_weights_inverse_and_whitening_are_those_of_the_matrix():
    K, noise, y = problem()
    C = K[..., :N, :N] + torch.diag_embed(noise)
    solver = Solver.of(K[..., :N, :N], noise, name="a test")
    torch.testing.assert_close(solver.weights(y), torch.linalg.solve(C, y.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(solver.inverse(), torch.linalg.inv(C))
    whitened = solver.whiten(C)
    torch.testing.assert_close(whitened.mT @ whitened, C @ torch.linalg.inv(C) @ C)


@pytest.mark.parametrize("groups", [None, [0, 1, 0, 2, 3, 1, 4, 0, 5]])
def test_rows_left_out_are_predicted_from_the_others(groups):
    """One at a time or in groups, each by conditioning anew on all others."""
    K, noise, y = problem()
    index = None if groups is None else torch.tensor(groups)
    mean, variance = Solver.of(K[..., :N, :N], noise, name="a test").left_out(y, index)
    numbers = np.arange(N) if groups is None else np.array(groups)
    for number in range(numbers.max() + 1):
        out, others = (torch.as_tensor(np.flatnonzero(chosen)) for chosen in (numbers == number, numbers != number))
        solver = Solver.of(K[..., others[:, None], others], noise[..., others], name="a test")
        p = solver.marginals(K[..., others[:, None], out], K.diagonal(dim1=-2, dim2=-1)[..., out], y[..., others])
        torch.testing.assert_close(mean[..., out], p.mean)
        torch.testing.assert_close(variance[..., out], p.variance + noise[..., out])


@pytest.mark.parametrize("base", [rbf_kernel, lambda shape: MaternKernel(nu=2.5, batch_shape=torch.Size(shape))])
def test_noise_of_single_rows_in_a_split(base):
    """Value and gradient, of the fast path and of any other kernel, against dense algebra and autograd."""
    generator = torch.Generator().manual_seed(1)
    x, y, more = (torch.randn(s, generator=generator).double() for s in ((2, 1, N + M, 3), (2, 2, N), (2, 2, N)))
    noise, more = torch.tensor([[0.1, 0.3], [0.02, 0.5]]).double(), more.exp()
    kernel = GPyTorchKernel(base((2, 2)).double())
    results = []
    for ours in (True, False):
        features = x.clone().requires_grad_()
        if ours:
            mean, variance = kernel.split_posterior(features, y, noise.unsqueeze(-1) + more, name="a test")
        else:
            K = kernel.gram(features)
            inverse = torch.linalg.inv(K[..., :N, :N] + torch.diag_embed(noise.unsqueeze(-1) + more))
            mean = (K[..., N:, :N] @ inverse @ y.unsqueeze(-1)).squeeze(-1)
            variance = (K[..., N:, N:] - K[..., N:, :N] @ inverse @ K[..., :N, N:]).diagonal(dim1=-2, dim2=-1)
        results.append((mean, variance, *torch.autograd.grad((mean + 2 * variance).sum(), features)))
    for own, expected in zip(*results, strict=True):
        torch.testing.assert_close(own, expected, atol=1e-9, rtol=1e-7)


def test_all_users_of_the_solver_agree_with_dense_algebra():
    """Exact posterior, autograd reference and fast RBF split posterior: one belief."""
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((2, N + M, 3), (2, 2, N)))
    noise = torch.tensor([[0.1, 0.3], [0.02, 0.5]], dtype=torch.float64)
    kernel = GPyTorchKernel(rbf_kernel((2, 2)).double())
    scale, lengthscale = (value.detach() for value in kernel.scaled_rbf())
    features = x.unsqueeze(1)
    beliefs = [
        ExactPosterior.condition(kernel, x[:, :N], y, noise, name="a test").marginals(x[:, N:]),
        condition(kernel.leading(features, N), kernel.diagonal(features[..., N:, :]), y, noise, name="a test"),
        rbf_split_posterior(features, y, lengthscale, scale, noise, name="a test"),
        kernel.split_posterior(features, y, noise, name="a test"),
    ]
    for member, output in np.ndindex(2, 2):
        options = {"lengthscale": float(lengthscale[member, output]), "scale": float(scale[member, output])}
        K = dense.rbf(x[member].numpy(), x[member].numpy(), **options)
        target = y[member, output].numpy()
        mean, covariance = dense.posterior(K[:N, :N], K[N:, :N], K[N:, N:], target, float(noise[member, output]))
        for q in beliefs:
            np.testing.assert_allclose(q.mean[member, output].detach(), mean, atol=1e-9)
            np.testing.assert_allclose(q.variance[member, output].detach(), np.diag(covariance), atol=1e-9)


def test_autograd_goes_through_the_solver():
    _, noise, y = problem((2,))

    def function(x, noise):
        S = -0.5 * (x.unsqueeze(-2) - x.unsqueeze(-3)).square().sum(dim=-1)
        K = S.exp()
        return tuple(Solver.of(K[..., :N, :N], noise, name="a test").project(K[..., :N, N:], y)[:2])

    x = torch.randn(2, N + M, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert torch.autograd.gradcheck(function, (x.requires_grad_(), noise.requires_grad_()))


def test_what_cannot_be_factorised_is_named():
    with pytest.raises(NotPositiveDefiniteError, match="a test"):
        Solver.of(-torch.eye(3, dtype=torch.float64), torch.zeros(1, dtype=torch.float64), name="a test")
