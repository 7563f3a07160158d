"""Noise that differs from row to row: found by the stack, or known to the user as weights or variances."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import spearmanr

import gdkl
from gdkl import DKLRegressor, GDKLClassifier, GDKLRegressor, GPRegressor, NNGPRegressor
from gdkl.numerics import GdklError

RNG = np.random.default_rng(0)
N = 90
X = RNG.uniform(-1, 1, (N, 2))
F = np.sin(3 * X[:, 0])
STD = np.where(np.arange(N) % 2 == 0, 0.05, 0.8)
Y = F + STD * RNG.normal(size=N)
NEW = RNG.uniform(-1, 1, (100, 2))

MAKERS = {
    "gdkl": lambda: GDKLRegressor(n_iter=5, random_state=0),
    "paper": lambda: GDKLRegressor(preset="paper", n_iter=50, random_state=0),
    "dkl": lambda: DKLRegressor(n_iter=80, random_state=0),
    "nngp": NNGPRegressor,
    "nngp-relevance": lambda: NNGPRegressor(relevance=True),
    "gp": GPRegressor,
}


@pytest.fixture(scope="module")
def varying():
    rows = RNG.uniform(-1, 1, (200, 3))
    std = 0.05 + 0.2 * (rows[:, 0] + 1)
    y = rows[:, 1] + 0.5 * rows[:, 0] + std * RNG.normal(size=200)
    return rows, y, std


@pytest.mark.parametrize("outputs", [1, 2])
def test_intervals_follow_the_noise(varying, outputs, tmp_path):
    rows, y, std = varying
    y = y if outputs == 1 else np.stack([y, rows[:, 2] + 4 * std * RNG.normal(size=200)], axis=1)
    model = GDKLRegressor(n_iter=5, warp=None, random_state=0).fit(rows, y)
    p = model.predict_distribution(rows)
    low, high = p.interval(0.9)
    width = (high - low).reshape(200, -1)
    assert all(spearmanr(column, std).statistic > 0.9 for column in width.T)
    model.save(tmp_path / "model.gdkl")
    q = gdkl.load(tmp_path / "model.gdkl").predict_distribution(rows)
    np.testing.assert_array_equal(p.log_prob(y), q.log_prob(y))
    if outputs == 1:
        _, covariance = model.predict(rows[:20], return_cov=True)
        np.testing.assert_allclose(np.diag(covariance), p.variance[:20], rtol=1e-6)
        alone = GDKLRegressor(n_iter=5, warp=None, random_state=0, guide_share=0).fit(rows, y)
        assert spearmanr(np.subtract(*alone.predict_distribution(rows).interval(0.9)), -std).statistic > 0.9


@pytest.mark.parametrize("name", MAKERS)
def test_known_noise_makes_predictions_better(name):
    def error(**known):
        return float(np.square(MAKERS[name]().fit(X, Y, **known).predict(NEW) - np.sin(3 * NEW[:, 0])).mean())

    plain = error()
    assert error(sample_weight=1 / STD**2) < 0.5 * plain
    assert error(noise_var=STD**2) < 0.5 * plain


@pytest.mark.parametrize("name", MAKERS)
def test_weight_zero_is_no_row_and_equal_weights_are_none(name):
    weight = (np.arange(N) % 3 > 0).astype(float)
    frame, target = pd.DataFrame(X, columns=["a", "b"]), pd.Series(Y)
    used = weight > 0
    left_out = MAKERS[name]().fit(frame[used], target[used]).predict(frame)
    np.testing.assert_array_equal(MAKERS[name]().fit(frame, target, sample_weight=5 * weight).predict(frame), left_out)
    if name == "nngp":
        tensors = (torch.as_tensor(values) for values in (X, Y, weight))
        np.testing.assert_allclose(MAKERS[name]().fit(*tensors).predict(X), left_out, rtol=1e-6)


def test_noise_is_what_a_row_of_mean_weight_has_and_what_is_beside_a_known_variance():
    weighted = NNGPRegressor(relevance=True).fit(X, Y, sample_weight=1 / STD**2)
    assert weighted.noise_ == pytest.approx(1 / np.mean(1 / STD**2), rel=0.5)
    more = Y + 0.2 * np.random.default_rng(1).normal(size=N)
    assert NNGPRegressor(relevance=True).fit(X, more, noise_var=STD**2).noise_ == pytest.approx(0.04, rel=0.7)


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"sample_weight": np.ones(3)}, "sample_weight has shape"),
        ({"noise_var": np.ones((N, 2))}, "noise_var has shape"),
        ({"sample_weight": -np.ones(N)}, "negative or not finite"),
        ({"noise_var": np.full(N, np.nan)}, "negative or not finite"),
        ({"sample_weight": np.zeros(N)}, "zero for every row"),
        ({"noise_var": ["a"] * N}, "not numeric"),
    ],
)
def test_wrong_knowledge_is_refused(known, message):
    with pytest.raises(GdklError, match=message):
        NNGPRegressor().fit(X, Y, **known)


def test_knowledge_has_limits():
    known = {"noise_var": STD**2}
    with pytest.raises(GdklError, match="exact inference"):
        GDKLRegressor(inference="sparse").fit(X, Y, sample_weight=STD)
    with pytest.raises(GdklError, match="need arrays"):
        GDKLRegressor().fit([(X, Y)], sample_weight=STD)
    with pytest.raises(GdklError, match="without a warp"):
        GDKLRegressor(warp="log").fit(X, np.exp(Y), **known)
    with pytest.raises(GdklError, match="a model per target"):
        NNGPRegressor().fit(X, np.stack([Y, F], axis=1), **known)
    with pytest.raises(GdklError, match="for regressors"):
        GDKLClassifier().fit(X, Y > 0, sample_weight=STD)
