"""Labels as targets and latent beliefs as probabilities, against GPyTorch, dense inverses and quadrature."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.likelihoods import DirichletClassificationLikelihood

import dense
from gdkl.gp import (
    ClassLikelihood,
    ExactPosterior,
    GPyTorchKernel,
    Marginals,
    base_samples,
    class_log_probs,
    label_targets,
    rbf_kernel,
)

DIRICHLET, GAUSSIAN = ClassLikelihood.DIRICHLET, ClassLikelihood.GAUSSIAN
NO_NOISE = torch.zeros(1, 1, dtype=torch.float64)


def _problem(n=15, classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, n, 2, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (1, n), generator=generator)
    labels[0, :classes] = torch.arange(classes)
    return x, labels


def _condition(kernel, x, targets, noise):
    return ExactPosterior.condition(kernel, x, targets.values, noise, row_noise=targets.noise, name="a test")


def test_dirichlet_targets_are_gpytorchs():
    _, labels = _problem()
    ours = label_targets(labels, 3, DIRICHLET)
    theirs = DirichletClassificationLikelihood(labels[0], dtype=torch.float64)
    torch.testing.assert_close(ours.values[0], theirs.transformed_targets)
    torch.testing.assert_close(ours.noise[0], theirs.noise)


def test_a_log_normal_with_these_moments_has_the_gammas_mean_and_variance():
    """The match that the transform is made by: exp(N(ỹ, σ̃²)) has mean α and variance α, as Gamma(α, 1)."""
    values, noise = label_targets(torch.tensor([0]), 2, DIRICHLET)
    mean = torch.exp(values + noise / 2)
    variance = mean.square() * torch.expm1(noise)
    alpha = torch.tensor([[1.01], [0.01]], dtype=torch.float64)
    torch.testing.assert_close(mean, alpha)
    torch.testing.assert_close(variance, alpha)


def test_gaussian_targets_are_plus_and_minus_one():
    values, noise = label_targets(torch.tensor([1, 0]), 2, GAUSSIAN)
    assert values.tolist() == [[-1, 1], [1, -1]]
    assert not noise.any()


def test_posterior_is_the_textbook_one_with_a_noise_a_row_and_class():
    x, labels = _problem()
    targets = label_targets(labels, 3, DIRICHLET)
    kernel = rbf_kernel((1, 3)).double()
    kernel.outputscale = torch.tensor([[1.0, 2.0, 3.0]])
    kernel.base_kernel.lengthscale = torch.tensor([0.5, 1.0, 2.0]).reshape(1, 3, 1, 1)
    noise = torch.tensor([[0.1, 0.2, 0.3]], dtype=torch.float64)
    posterior = _condition(GPyTorchKernel(kernel), x, targets, noise)
    new = torch.randn(1, 4, 2, dtype=torch.float64)
    mean, variance = posterior.marginals(new)
    for c in range(3):
        lengthscale, scale = (0.5, 1.0, 2.0)[c], (1.0, 2.0, 3.0)[c]
        K = dense.rbf(x[0].numpy(), x[0].numpy(), lengthscale, scale)
        K21 = dense.rbf(new[0].numpy(), x[0].numpy(), lengthscale, scale)
        inverse = np.linalg.inv(K + np.diag(targets.noise[0, c].numpy() + float(noise[0, c])))
        np.testing.assert_allclose(mean[0, c], K21 @ inverse @ targets.values[0, c].numpy(), atol=1e-9)
        np.testing.assert_allclose(variance[0, c], scale - np.einsum("ij,jk,ik->i", K21, inverse, K21), atol=1e-9)


def _latents(classes=3, rows=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mean = 2 * torch.randn(1, classes, rows, generator=generator, dtype=torch.float64)
    return Marginals(mean, torch.rand(1, classes, rows, generator=generator, dtype=torch.float64) * 3 + 0.1)


def _by_quadrature(mean, variance, nodes=40):
    """E softmax(f) over independent Gaussians, by a product of Gauss–Hermite rules: no sampling."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(*[points] * len(mean), indexing="ij"), -1).reshape(-1, len(mean))
    weight = np.prod(np.stack(np.meshgrid(*[weights] * len(mean), indexing="ij"), -1).reshape(-1, len(mean)), axis=1)
    f = mean + np.sqrt(variance) * grid
    p = np.exp(f - f.max(axis=1, keepdims=True))
    return weight @ (p / p.sum(axis=1, keepdims=True))


def test_dirichlet_probabilities_are_the_expected_softmax():
    latents = _latents()
    base = base_samples(200_000, 3, seed=1)
    probs = class_log_probs(latents, DIRICHLET, NO_NOISE, base).exp()[0]
    for row in range(5):
        expected = _by_quadrature(latents.mean[0, :, row].numpy(), latents.variance[0, :, row].numpy())
        np.testing.assert_allclose(probs[:, row], expected, atol=5e-3)
    torch.testing.assert_close(probs.sum(dim=0), torch.ones(5, dtype=torch.float64))


def test_gaussian_probabilities_are_bayes_rule_over_the_target_vectors():
    latents = _latents()
    noise = torch.tensor([[0.1, 0.5, 0.9]], dtype=torch.float64)
    probs = class_log_probs(latents, GAUSSIAN, noise, base_samples(2, 3, 0)).exp()[0]
    total = latents.variance[0] + noise.mT
    for row in range(5):
        density = [
            np.exp(-0.5 * ((2 * np.eye(3)[c] - 1 - latents.mean[0, :, row].numpy()) ** 2 / total[:, row].numpy()).sum())
            for c in range(3)
        ]
        np.testing.assert_allclose(probs[:, row], np.array(density) / np.sum(density), rtol=1e-9)


@pytest.mark.parametrize("likelihood", [DIRICHLET, GAUSSIAN])
def test_a_rows_probabilities_do_not_depend_on_its_batch(likelihood, monkeypatch):
    latents = _latents(rows=23)
    base = base_samples(256, 3, seed=0)
    whole = class_log_probs(latents, likelihood, NO_NOISE, base)
    one_by_one = [
        class_log_probs(Marginals(*(v[..., i : i + 1] for v in latents)), likelihood, NO_NOISE, base) for i in range(23)
    ]
    torch.testing.assert_close(torch.cat(one_by_one, dim=-1), whole, rtol=0, atol=1e-12)
    monkeypatch.setattr("gdkl.gp.labels.rows_per_chunk", lambda bytes_per_row: 7)
    torch.testing.assert_close(class_log_probs(latents, likelihood, NO_NOISE, base), whole, rtol=0, atol=1e-12)


def test_label_order_matters_no_more_than_the_samples_do():
    """With fixed latents, permuted classes get permuted probabilities up to four Monte Carlo standard errors."""
    samples, classes = 1024, 4
    latents = _latents(classes, rows=50)
    base = base_samples(samples, classes, seed=3)
    probs = class_log_probs(latents, DIRICHLET, NO_NOISE, base).exp()[0]
    order = torch.tensor([2, 0, 3, 1])
    permuted = class_log_probs(Marginals(*(v[:, order] for v in latents)), DIRICHLET, NO_NOISE, base).exp()[0]
    f = latents.mean[0] + latents.variance[0].sqrt() * base[:, :, None]
    # Two independent estimates differ by √2 standard errors of one.
    error = torch.softmax(f, dim=1).std(dim=0) * (2 / samples) ** 0.5
    gap = (permuted - probs[order]).abs() / error[order]
    assert float(gap.max()) < 4
    assert float(gap.max()) > 0


def test_certain_latents_give_the_softmax_itself():
    mean = _latents().mean
    probs = class_log_probs(Marginals(mean, torch.zeros_like(mean)), DIRICHLET, NO_NOISE, base_samples(8, 3, 0))
    torch.testing.assert_close(probs, torch.log_softmax(mean, dim=1))


def test_base_samples_are_the_seeds():
    assert torch.equal(base_samples(5, 2, seed=1), base_samples(5, 2, seed=1))
    assert not torch.equal(base_samples(5, 2, seed=1), base_samples(5, 2, seed=2))


def test_base_samples_favour_no_class():
    # Latents of one mean and variance in all classes: the probabilities are 1 / C but for the samples.
    latents = Marginals(torch.zeros(1, 10, 1, dtype=torch.float64), torch.full((1, 10, 1), 144.0, dtype=torch.float64))
    for seed in range(3):
        probs = class_log_probs(latents, DIRICHLET, NO_NOISE, base_samples(1020, 10, seed)).exp()
        torch.testing.assert_close(probs, torch.full_like(probs, 0.1), rtol=1e-12, atol=0)


def test_base_samples_are_standard_normal():
    drawn = base_samples(30_000, 3, seed=7)
    assert drawn.mean(dim=0).abs().max() < 0.002
    torch.testing.assert_close(drawn.T.cov(), torch.eye(3, dtype=torch.float64), rtol=0, atol=0.01)
    levels = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    torch.testing.assert_close(drawn[:, 0].quantile(levels), torch.special.ndtri(levels), rtol=0, atol=0.01)
