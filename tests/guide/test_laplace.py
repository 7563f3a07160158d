"""Laplace's approximation of classes: mode, sites and evidence against the textbook, relevances that are found."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from gdkl import infinite
from gdkl.gp import Solver
from gdkl.guide import class_sites, fit_class_relevance
from gdkl.guide.laplace import LaplaceEvidence, class_mode
from gdkl.guide.relevance_search import differentiable_gram

MLP = infinite.mlp()
CLASSES = pytest.mark.parametrize("classes", [2, 3, 5])


def _data(classes, n=24, d=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, dtype=torch.float64, generator=generator)
    noisy = x[:, 0] + 0.3 * torch.randn(n, dtype=torch.float64, generator=generator)
    return x, (noisy.argsort().argsort() * classes // n), 3.0 * MLP.kernel(x)


@CLASSES
def test_the_mode_is_the_one_that_a_general_optimiser_finds(classes):
    _, labels, K = _data(classes)
    L, n = np.linalg.cholesky(K.numpy()), len(labels)

    def loss(whitened):
        v = whitened.reshape(classes, n)
        f = v @ L.T
        return 0.5 * float((v * v).sum()) - log_softmax(f, axis=0)[labels.numpy(), np.arange(n)].sum()

    best = minimize(loss, np.zeros(classes * n), method="BFGS", options={"gtol": 1e-7})
    mode = class_mode(K, labels, classes)
    assert mode.log_joint == pytest.approx(-best.fun, abs=1e-6)
    np.testing.assert_allclose(mode.latents.numpy(), best.x.reshape(classes, n) @ L.T, atol=1e-3)


@CLASSES
def test_a_regression_on_the_sites_has_the_mode_as_its_mean(classes):
    _, labels, K = _data(classes)
    z, variance = class_sites(K, labels, classes)
    mean = Solver.of(K, variance, name="K").marginals(K[None], K.diagonal()[None], z).mean
    np.testing.assert_allclose(mean, class_mode(K, labels, classes).latents, atol=1e-3)


def test_two_classes_are_the_textbook_logistic_approximation():
    x, labels, K = _data(2)
    # The difference of both latent functions has twice their covariance, and a logistic likelihood.
    sign, twice = 2 * labels.numpy() - 1, 2 * K.numpy()
    f = np.zeros(len(sign))
    for _ in range(100):
        p = expit(f)
        W = p * (1 - p)
        f = twice @ np.linalg.solve(np.eye(len(f)) + W[:, None] * twice, W * f + (sign + 1) / 2 - p)
    W = expit(f) * expit(-f)
    fit = -0.5 * f @ np.linalg.solve(twice, f) - np.log1p(np.exp(-sign * f)).sum()
    # Both functions are counted, where the textbook has one.
    expected = fit - 2 * 0.5 * np.linalg.slogdet(np.eye(len(f)) + W[:, None] * twice)[1]
    scale = float(K.diagonal().mean())
    found = LaplaceEvidence(differentiable_gram(MLP), x, labels, 2)(torch.ones(3).double(), scale, 1.0)
    assert found is not None
    assert found.value == pytest.approx(expected, rel=1e-6)
    latents = class_mode(K, labels, 2).latents
    np.testing.assert_allclose((latents[1] - latents[0]).numpy(), f, atol=1e-3)


@CLASSES
def test_the_gradient_of_the_evidence(classes):
    x, labels, _ = _data(classes)
    evidence = LaplaceEvidence(differentiable_gram(MLP), x, labels, classes)
    at = np.array([0.1, -0.3, 0.2, 1.0])

    def find(v):
        return evidence(torch.as_tensor(v[:3]).exp(), math.exp(v[3]), 1.0)

    found = find(at)
    slopes = [(find(at + step).value - find(at - step).value) / 2e-4 for step in 1e-4 * np.eye(4)]
    np.testing.assert_allclose([*found.by_multipliers, found.by_scale], slopes, rtol=1e-3, atol=1e-3)


def test_groups_starts_and_kernels_without_relevances():
    x, labels, _ = _data(2, n=80, d=4)
    fit = fit_class_relevance(MLP, x, labels, 2, deviation=1.0, groups=[0, 1, 1, 2])
    assert int(fit.multipliers.argmax()) == 0
    assert fit.multipliers[1] == fit.multipliers[2]
    again = fit_class_relevance(MLP, x, labels, 2, deviation=1.0, groups=[0, 1, 1, 2], start=fit)
    assert again.log_evidence >= fit.log_evidence - 1e-4
    plain = fit_class_relevance(lambda a, b: torch.exp(-torch.cdist(a, b)), x, labels, 2, deviation=None)
    assert torch.equal(plain.multipliers, torch.ones(4, dtype=torch.float64))
    isotropic = fit_class_relevance(MLP, x, labels, 2, deviation=0.0)
    assert isotropic.multipliers.std() == 0


def test_constant_rows_leave_the_start():
    labels = torch.arange(10) % 2
    fit = fit_class_relevance(
        infinite.Sequential(infinite.Linear()), torch.zeros(10, 2).double(), labels, 2, deviation=1.0
    )
    assert fit.multipliers.tolist() == [1.0, 1.0]
