"""Scorers for searches: proper scores of estimators, pipelines and searches."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gdkl import GPRegressor, NNGPClassifier, NNGPRegressor, infinite, metrics
from gdkl.numerics import OptionError

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
Y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=60)


def test_scores_are_those_of_a_gaussian():
    model = GPRegressor().fit(X[:40], Y[:40])
    mean, std = model.predict(X[40:], return_std=True)
    expected = norm.logpdf(Y[40:], mean, std).mean()
    assert metrics.log_likelihood_scorer(model, X[40:], Y[40:]) == pytest.approx(expected)
    z = (Y[40:] - mean) / std
    crps = std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert metrics.crps_scorer(model, X[40:], Y[40:]) == pytest.approx(-crps.mean())


@pytest.mark.parametrize("scorer", [metrics.log_likelihood_scorer, metrics.crps_scorer])
def test_a_search_chooses_the_better_distribution(scorer):
    # With a kernel without its first column nothing is learned.
    guides = [infinite.mlp(), lambda a, b: 1.0 + a[..., 1:] @ b[..., 1:].mT]
    search = GridSearchCV(
        make_pipeline(StandardScaler(), NNGPRegressor()), {"nngpregressor__guide": guides}, scoring=scorer, cv=3
    ).fit(X, Y)
    assert search.best_params_["nngpregressor__guide"] is guides[0]
    assert search.cv_results_["mean_test_score"][0] > search.cv_results_["mean_test_score"][1]
    assert search.score(X, Y) == scorer(search.best_estimator_, X, Y) == scorer(search, X, Y)
    inner = search.best_estimator_
    p = inner[-1].predict_distribution(inner[:-1].transform(X))
    expected = p.log_prob(Y).mean() if scorer is metrics.log_likelihood_scorer else -p.crps(Y).mean()
    assert scorer(inner, X, Y) == expected


def test_several_scorers_and_classes():
    X, y = load_iris(return_X_y=True)
    found = cross_validate(
        NNGPClassifier(),
        X[::3],
        y[::3],
        cv=2,
        scoring={"ll": metrics.log_likelihood_scorer, "nll": "neg_log_loss"},
    )
    np.testing.assert_allclose(found["test_ll"], found["test_nll"])
    with pytest.raises(OptionError, match="for regressors"):
        metrics.crps_scorer(NNGPClassifier().fit(X[::3], y[::3]), X, y)
    with pytest.raises(OptionError, match="LinearRegression has no predict_distribution"):
        metrics.crps_scorer(LinearRegression().fit(X, y), X, y)
