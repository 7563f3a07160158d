"""The share of outliers against made errors, and in a fit of a table that has some."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gdkl
from gdkl import GDKLRegressor
from gdkl.calibration import outlier_share, widened
from gdkl.training import OUTLIER_VARIANCE


def normal(errors, variance):
    return -0.5 * (errors**2 / variance + np.log(2 * np.pi) + torch.log(variance))


def share(errors):
    one = torch.ones_like(errors)
    return outlier_share(normal(errors, one), normal(errors, widened(one)))


@pytest.fixture(scope="module")
def errors():
    return torch.from_numpy(np.random.default_rng(0).standard_normal((2, 2000)))


def test_normal_errors_have_none(errors):
    assert share(errors) is None


def test_the_share_is_that_of_the_rows(errors):
    wide = errors.clone()
    wide[0, :100] *= OUTLIER_VARIANCE**0.5
    found = share(wide)
    assert found[0] == pytest.approx(0.05, abs=0.015)
    assert found[1] < 0.002


def test_a_single_gross_error_is_enough(errors):
    wide = errors.clone()
    wide[0, 0] = 30.0
    assert 0 < share(wide)[0] < 0.003


@pytest.fixture(scope="module")
def fitted():
    random = np.random.default_rng(1)
    X = random.uniform(-2, 2, size=(90, 2))
    y = np.sin(2 * X[:, 0]) + 0.05 * random.standard_normal(90)
    y[::15] += random.choice([-6, 6], size=6)
    return GDKLRegressor(n_iter=10, warp=None, random_state=0).fit(X, y), X


class TestInAStack:
    def test_far_targets_are_less_improbable(self, fitted):
        model, X = fitted
        p = model.predict_distribution(X[:20])
        outliers, model.stack_.outliers = model.stack_.outliers, None
        thin = model.predict_distribution(X[:20])
        model.stack_.outliers = outliers
        assert 0.01 < float(outliers[0]) < 0.2
        far = thin.mean + 10 * np.sqrt(thin.variance)
        assert (p.log_prob(far) > thin.log_prob(far) + 10).all()
        np.testing.assert_allclose(p.mean, thin.mean, rtol=1e-12)
        np.testing.assert_allclose(p.latent_variance, thin.latent_variance, rtol=1e-9)

    def test_variance_is_that_of_a_share_of_wide_rows(self, fitted):
        model, X = fitted
        share, (mean, latent, noise) = (
            float(model.stack_.outliers[0]),
            model.stack_.marginals(torch.as_tensor(model.kind_.input.read(model, X[:5]))[None]),
        )
        count = len(mean) // 2
        torch.testing.assert_close((latent + noise)[count:], OUTLIER_VARIANCE * (latent + noise)[:count])
        weights = model.stack_.component_weights()
        torch.testing.assert_close(weights[count:].sum(), torch.tensor(share, dtype=torch.float64))
        covariance = model.predict(X[:5], return_cov=True)[1]
        np.testing.assert_allclose(np.diag(covariance), model.predict_distribution(X[:5]).variance, rtol=1e-6)

    def test_a_file_has_it(self, fitted, tmp_path):
        model, X = fitted
        model.save(tmp_path / "model.gdkl")
        loaded = gdkl.load(tmp_path / "model.gdkl")
        assert (
            loaded.predict_distribution(X).log_prob(X[:, 0]) == model.predict_distribution(X).log_prob(X[:, 0])
        ).all()
