"""A fitted regressor as functions of tensors: against its own predictions, finite differences and dense algebra."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gdkl import DKLRegressor, GDKLRegressor, GPRegressor, NNGPRegressor
from gdkl.integrations.mixture import Mixture

OUTPUTS = 2


def data(n=12, d=2, outputs=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=generator, dtype=torch.float64)
    Y = torch.stack([torch.sin((3 + k) * X).sum(dim=-1) + 2 * k for k in range(outputs)], dim=-1)
    return X, Y + 0.1 * torch.randn(n, outputs, generator=generator, dtype=torch.float64)


def fitted(estimator, outputs=1, positive=False):
    X, Y = data(outputs=outputs)
    y = Y.exp() if positive else Y
    return estimator.fit(X.numpy(), (y if outputs > 1 else y[:, 0]).numpy())


MAKERS = {
    "stack": lambda: fitted(GDKLRegressor(n_iter=2, warp=None, random_state=0)),
    "two outputs": lambda: fitted(GDKLRegressor(n_iter=2, warp=None, random_state=0), OUTPUTS),
    "published": lambda: fitted(GDKLRegressor(n_iter=2, preset="paper", n_members=2, random_state=0)),
    "dkl": lambda: fitted(DKLRegressor(n_iter=2, random_state=0)),
    "nngp": lambda: fitted(NNGPRegressor(relevance=True)),
    "gp": lambda: fitted(GPRegressor(ard=True), OUTPUTS),
    "log": lambda: fitted(GDKLRegressor(n_iter=2, warp="log", random_state=0), positive=True),
    "auto": lambda: fitted(GDKLRegressor(n_iter=2, random_state=0), OUTPUTS, positive=True),
}


@pytest.fixture(scope="module")
def estimators():
    return {name: make() for name, make in MAKERS.items()}


def new_rows(*shape, seed=1):
    return torch.rand(*shape, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 1.4 - 0.2


@pytest.mark.parametrize("name", MAKERS)
class TestMoments:
    def test_are_those_of_predictions(self, name, estimators):
        X = new_rows(5)
        mean, covariance = estimators[name].predict(X.numpy(), return_cov=True)
        found = Mixture.of(estimators[name]).moments(X, noisy=True)
        np.testing.assert_allclose(found[0].mT.squeeze(-1), mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found[1].movedim(0, -1).squeeze(-1), covariance, rtol=1e-7, atol=1e-9)

    def test_of_a_batch_are_those_of_each_of_its_sets(self, name, estimators):
        mixture, X = Mixture.of(estimators[name]), new_rows(3, 2, 4)
        mean, covariance = mixture.moments(X)
        for index in np.ndindex(3, 2):
            one = mixture.moments(X[index])
            torch.testing.assert_close(mean[index], one[0], rtol=1e-9, atol=1e-10)
            torch.testing.assert_close(covariance[index], one[1], rtol=1e-7, atol=1e-10)

    def test_have_the_gradients_of_finite_differences(self, name, estimators):
        mixture = Mixture.of(estimators[name])
        for X in (new_rows(2), new_rows(2, 2)):
            assert torch.autograd.gradcheck(mixture.moments, (X.requires_grad_(),), eps=1e-6, atol=1e-5, rtol=1e-3)


def dense_posterior(estimator, X, new_X, new_Y, noise=None):
    """Given the training rows and the new ones, from kernel matrices of all of them."""
    table, target = estimator.kind_.input, estimator.target_
    X_train, Y_train = data(outputs=len(target.mean))
    scale, shift = torch.as_tensor(target.std), torch.as_tensor(target.mean)
    y = ((torch.cat([Y_train, new_Y]) - shift) / scale).mT
    rows = torch.as_tensor(table.rows(torch.cat([X_train, new_X, X]).numpy()))[None]
    n, m = len(X_train), len(new_X)
    means, covariances = [], []
    for model in estimator.stack_.models.values():
        own = model.posterior.noise
        with torch.no_grad():
            features = model.embed(rows.expand(len(own), -1, -1))
            K = model.posterior.kernel.gram(features.unsqueeze(-3)).expand(*own.shape, -1, -1)
        variance = own.unsqueeze(-1).expand(*own.shape, n + m).clone()
        if noise is not None:
            variance[..., n:] = (noise / scale**2).mT
        C = K[..., : n + m, : n + m] + torch.diag_embed(variance)
        W = torch.linalg.solve(C, K[..., : n + m, n + m :])
        means.append((W.mT @ y.unsqueeze(-1)).squeeze(-1))
        covariances.append(K[..., n + m :, n + m :] - K[..., n + m :, : n + m] @ W)
    mean, covariance = torch.cat(means), torch.cat(covariances)
    weights = estimator.stack_.component_weights()[..., None]
    total = (weights * mean).sum(dim=0)
    away = mean - total
    covariance = (weights[..., None] * (covariance + away[..., None] * away[..., None, :])).sum(dim=0)
    return total * scale[:, None] + shift[:, None], covariance * scale[:, None, None] ** 2


@pytest.mark.parametrize("name", ["stack", "two outputs", "published", "nngp", "gp"])
class TestConditioning:
    def test_equals_the_posterior_given_all_rows(self, name, estimators):
        mixture, X = Mixture.of(estimators[name]), new_rows(3, seed=2)
        new_X, new_Y = data(4, outputs=len(mixture.outputs), seed=3)
        for noise in (None, torch.full_like(new_Y, 0.3)):
            found = mixture.condition(new_X, new_Y, noise).moments(X)
            expected = dense_posterior(estimators[name], X, new_X, new_Y, noise)
            torch.testing.assert_close(found[0], expected[0], rtol=1e-6, atol=1e-7)
            torch.testing.assert_close(found[1], expected[1], rtol=1e-6, atol=1e-7)

    def test_is_that_of_the_estimator(self, name, estimators):
        mixture, X = Mixture.of(estimators[name]), new_rows(3, seed=2)
        new_X, new_Y = data(4, outputs=len(mixture.outputs), seed=3)
        y = new_Y.numpy() if len(mixture.outputs) > 1 else new_Y[:, 0].numpy()
        for found, expected in zip(
            mixture.condition(new_X, new_Y).moments(X),
            Mixture.of(estimators[name].condition(new_X.numpy(), y)).moments(X),
            strict=True,
        ):
            torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-8)

    def test_in_parts_equals_at_once(self, name, estimators):
        mixture, X = Mixture.of(estimators[name]), new_rows(3, seed=2)
        new_X, new_Y = data(4, outputs=len(mixture.outputs), seed=3)
        parts = mixture.condition(new_X[:1], new_Y[:1]).condition(new_X[1:], new_Y[1:]).moments(X)
        for found, expected in zip(parts, mixture.condition(new_X, new_Y).moments(X), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)

    def test_of_a_batch_is_that_of_each_of_its_sets(self, name, estimators):
        mixture, X = Mixture.of(estimators[name]), new_rows(3, seed=2)
        new_X, new_Y = data(4, outputs=len(mixture.outputs), seed=3)
        several = torch.stack([new_Y, new_Y + 1.0, 2 * new_Y])
        mean, covariance = mixture.condition(new_X, several).moments(X)
        for k in range(3):
            one = mixture.condition(new_X, several[k]).moments(X)
            torch.testing.assert_close(mean[k], one[0], rtol=1e-8, atol=1e-9)
            torch.testing.assert_close(covariance[k], one[1], rtol=1e-8, atol=1e-9)


def test_conditioning_has_gradients(estimators):
    mixture, X = Mixture.of(estimators["two outputs"]), new_rows(2, seed=2)
    new_X, new_Y = data(2, outputs=OUTPUTS, seed=3)

    def moments(new_X, new_Y):
        return mixture.condition(new_X, new_Y).moments(X)

    assert torch.autograd.gradcheck(moments, (new_X.requires_grad_(), new_Y.requires_grad_()), atol=1e-5, rtol=1e-3)


def test_observations_are_warped(estimators):
    # Seen very often, a value is what the function has there: if the logarithm were not taken it would be another.
    mixture, X = Mixture.of(estimators["log"]), new_rows(1, seed=4)
    value = 1.5 * mixture.moments(X)[0]
    seen = mixture.condition(X.expand(200, -1), value.expand(200, 1))
    torch.testing.assert_close(seen.moments(X)[0], value, rtol=0.05, atol=0.0)
    # What no logarithm gives, as samples of a Gaussian may have, counts as far away.
    assert torch.isfinite(mixture.condition(X, -value).moments(X)[0]).all()
