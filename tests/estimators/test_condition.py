"""More rows for a fitted model: the posterior is the one given all of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from regressor_cases import MAKERS, table

import gdkl
from dense import posterior, rbf
from gdkl import DKLRegressor, GDKLRegressor, GPRegressor, NNGPRegressor
from gdkl.gp import ExactPosterior
from gdkl.numerics import DataError, NotFittedError, OptionError

X, Y = table(50)
NEW = slice(30, 50)


def recomputed(model, X, y, further=None):
    """Every posterior of a fitted estimator conditioned on all rows at once."""
    rows, targets = model._scaled_rows(X), torch.as_tensor(model.target_.scaled(y))
    found = []
    for one in model.stack_.models.values():
        own = one.posterior
        features = one.embed(rows.expand(one.members, -1, -1))
        posterior = ExactPosterior.condition(
            own.kernel, features, targets.expand(one.members, -1, -1), own.noise, row_noise=further, name="a test's"
        )
        found.append(posterior)
    return found


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("name", MAKERS)
def test_conditioning_equals_recomputing_every_posterior(name, outputs):
    X, y = table(50, outputs=outputs)
    model = MAKERS[name](**({"n_iter": 5} if "gdkl" in name else {})).fit(X[:30], y[:30])
    before = model.predict(X)
    more = model.condition(X[NEW], y[NEW])
    for own, whole in zip(more.stack_.models.values(), recomputed(model, X, y), strict=True):
        torch.testing.assert_close(own.posterior.factor, whole.factor, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(own.posterior.weights, whole.weights, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(own.posterior.features, whole.features)
    assert type(more) is type(model)
    assert (model.predict(X) == before).all()
    assert np.abs(more.predict(X[NEW]) - y[NEW]).mean() < np.abs(before[NEW] - y[NEW]).mean()
    assert more.model_ is list(more.stack_.models.values())[-1]


def test_it_is_the_textbook_posterior():
    model = GPRegressor().fit(X[:30], Y[:30])
    more = model.condition(X[NEW], Y[NEW], noise_var=np.full(20, 4.0))
    kernel = model.model_.posterior.kernel.kernel
    lengthscale, scale = float(kernel.base_kernel.lengthscale), float(kernel.outputscale)
    rows = (X - X[:30].mean(axis=0)) / X[:30].std(axis=0)
    std = Y[:30].std()
    known, asked = rows[:45], rows[45:]
    noise = np.diag(np.full(45, float(model.model_.noise)) + np.repeat([0.0, 4 / std**2], [30, 15]))
    first = model.condition(X[30:40], Y[30:40], noise_var=np.full(10, 4.0)).condition(
        X[40:45], Y[40:45], 4 * np.ones(5)
    )
    mean, covariance = posterior(
        rbf(known, known, lengthscale, scale) + noise,
        rbf(asked, known, lengthscale, scale),
        rbf(asked, asked, lengthscale, scale),
        (Y[:45] - Y[:30].mean()) / std,
        0.0,
    )
    np.testing.assert_allclose(first.predict(X[45:]), mean * std + Y[:30].mean(), rtol=1e-9)
    np.testing.assert_allclose(first.latent_covariance(X[45:]), covariance * std**2, rtol=1e-6, atol=1e-9)
    assert more.noise_ == model.noise_


@pytest.mark.parametrize("name", ["gdkl", "nngp"])
def test_a_conditioned_model_is_saved_and_conditioned_again(name, tmp_path):
    model = MAKERS[name](**({"n_iter": 3} if name == "gdkl" else {})).fit(X[:30], Y[:30])
    more = model.condition(X[30:40], Y[30:40])
    more.save(tmp_path / "more.gdkl")
    again = gdkl.load(tmp_path / "more.gdkl")
    assert (again.predict(X) == more.predict(X)).all()
    twice, once = again.condition(X[40:], Y[40:]), model.condition(X[NEW], Y[NEW])
    np.testing.assert_allclose(twice.predict(X, return_std=True), once.predict(X, return_std=True), rtol=1e-7)


def test_one_row_after_the_other_from_one_on():
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = NNGPRegressor().fit(frame[:1], Y[:1])
    for k in range(1, 4):
        model = model.condition(frame[k : k + 1], Y[k : k + 1])
        p = model.predict_distribution(frame[: k + 1])
        assert (np.abs(p.mean - Y[: k + 1]) < 4 * p.std).all()
    assert list(model.feature_names_in_) == list("abcd")


def test_a_warp_and_heteroscedastic_noise_stay():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, (80, 1))
    y = np.exp(np.sin(x[:, 0]) + 0.3 * x[:, 0] * rng.normal(size=80))
    model = GDKLRegressor(n_iter=3, warp="log", random_state=0).fit(x[:60], y[:60])
    more = model.condition(x[60:], y[60:])
    assert more.target_ is model.target_
    assert more.stack_.log_noise is model.stack_.log_noise
    assert metrics_better(more, model, x[60:], y[60:])
    with pytest.raises(DataError, match="beyond the warp"):
        model.condition(x[:1], [0.0])
    with pytest.raises(OptionError, match="without a warp"):
        model.condition(x[:1], [1.0], noise_var=[0.1])


def metrics_better(more, model, x, y):
    return more.predict_distribution(x).log_prob(y).mean() > model.predict_distribution(x).log_prob(y).mean()


def test_wrong_rows_are_one_line():
    model = NNGPRegressor().fit(X[:30], Y[:30])
    for rows, targets, message in [
        (X[:3, :2], Y[:3], "expecting 4 features"),
        (X[:3], Y[:2], "3 rows and y has 2"),
        (X[:3], np.ones((3, 2)), r"y has shape \(3, 2\), and fit had 1 target"),
        (X[:3], [1.0, np.nan, 2.0], "y has NaN"),
        (X[:3], None, "requires y"),
    ]:
        with pytest.raises(DataError, match=message):
            model.condition(rows, targets)
    with pytest.raises(DataError, match="noise_var has shape"):
        model.condition(X[:3], Y[:3], noise_var=[1.0])
    with pytest.raises(NotFittedError):
        NNGPRegressor().condition(X, Y)
    sparse = DKLRegressor(inference="sparse", n_inducing=5, n_iter=2, random_state=0).fit(X, Y)
    with pytest.raises(OptionError, match="inducing points cannot be conditioned"):
        sparse.condition(X, Y)
