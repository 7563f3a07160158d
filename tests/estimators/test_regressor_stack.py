"""The regressor's stack: what it says of itself, files, warps, relevances and unusual tables."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import gdkl
from gdkl import GDKLRegressor, NNGPRegressor
from gdkl.numerics import DataWarning, GdklError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 4))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=80)
PAIR = (np.sqrt, np.square)


def fitted(X=X, y=Y, **options):
    return GDKLRegressor(n_iter=5, random_state=0, **options).fit(X, y)


def test_weights_and_relevances_say_who_speaks_and_what_matters(tmp_path):
    model = fitted()
    assert model.weights_.sum() == pytest.approx(1)
    assert model.weights_.index[-1] == "student"
    assert model.relevance_.argmax() == 0
    assert model.relevance_.shape == (4,)
    model.save(tmp_path / "model.gdkl")
    again = gdkl.load(tmp_path / "model.gdkl")
    pd.testing.assert_series_equal(again.weights_, model.weights_)
    np.testing.assert_array_equal(again.relevance_, model.relevance_)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_a_category_has_one_relevance():
    frame = pd.DataFrame({"size": X[:, 0], "town": np.array(["a", "b", "c", "d"])[np.arange(80) % 4]})
    for model in (fitted(frame), NNGPRegressor(relevance=True).fit(frame, Y)):
        assert list(model.relevance_.index) == ["size", "town"]
        factors = next(iter(model.stack_.models.values())).embed.template.factors
        assert torch.equal(factors[1:], factors[1].expand(len(factors) - 1))


@pytest.mark.parametrize("share", [0, 0.25, 1])
def test_a_given_share(share):
    weights = fitted(guide_share=share).weights_
    assert weights["student"] == pytest.approx(1 - share)


@pytest.mark.parametrize("options", [{"preset": "paper"}, {"inference": "sparse"}])
def test_a_share_without_a_stack_is_refused(options):
    with pytest.raises(GdklError, match="needs the stack"):
        fitted(guide_share=0.5, **options)


@pytest.mark.parametrize("warp", ["auto", "log", PAIR])
def test_warped_models_survive_the_file(warp, tmp_path):
    y = np.exp(2 * Y)
    model = fitted(y=y, warp=warp)
    assert model.target_.warps[0] is not None
    model.save(tmp_path / "model.gdkl")
    again = gdkl.load(tmp_path / "model.gdkl", factories={"warp": PAIR} if warp is PAIR else None)
    p, q = (one.predict_distribution(X) for one in (model, again))
    np.testing.assert_array_equal(p.log_prob(y), q.log_prob(y))
    mean, cov = model.predict(X[:5], return_cov=True)
    np.testing.assert_allclose(mean, p.mean[:5], rtol=1e-3)
    np.testing.assert_allclose(np.diag(cov), p.variance[:5], rtol=1e-2)
    draws = model.sample_y(X[:5], 4000)
    np.testing.assert_allclose(np.median(draws, axis=1), p.quantile(0.5)[:5], rtol=0.2)


def test_a_file_with_functions_says_what_it_needs(tmp_path):
    fitted(y=np.exp(Y), warp=PAIR).save(tmp_path / "model.gdkl")
    with pytest.raises(GdklError, match="custom warp"):
        gdkl.load(tmp_path / "model.gdkl")


def test_intervals_of_a_logarithm_are_positive():
    low, _ = fitted(y=np.exp(3 * Y), warp="log").predict_distribution(10 * X).interval(0.99)
    assert (low > 0).all()


def few_values():
    return (np.arange(60) % 2)[:, None].astype(float), RNG.normal(size=60)


def rare_target():
    y = np.zeros(400)
    y[:4] = 1
    return RNG.normal(size=(400, 2)), y


@pytest.mark.parametrize("table", [few_values, rare_target])
def test_tables_with_few_distinct_rows_or_targets(table):
    rows, y = table()
    p = fitted(rows, y).predict_distribution(rows)
    assert np.isfinite(p.log_prob(y)).all()


def test_a_constant_column_warns_of_itself_alone():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DataWarning)
        fitted(np.c_[X, np.ones(80)])


def test_a_guide_without_gradients_has_no_relevances():
    def linear(a, b):
        return torch.as_tensor(1 + a.numpy() @ b.numpy().T)

    model = fitted(guide=linear)
    assert list(model.weights_.index) == ["guide", "student"]
    assert not hasattr(model, "relevance_")


def test_rows_far_away_are_not_predicted_far_away():
    far = X[:3].copy()
    far[:, 1] = 1e6
    p = fitted().predict_distribution(far)
    assert np.abs(p.mean).max() < 20
    assert (p.latent_variance > fitted().predict_distribution(X).latent_variance.max()).all()


def test_networks_without_a_batching_rule_train():
    class Recurrent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = torch.nn.LSTM(4, 3, batch_first=True)

        def forward(self, rows):
            return self.cell(rows.unsqueeze(1))[0].squeeze(1)

    assert np.isfinite(fitted(feature_net=Recurrent()).predict(X)).all()
