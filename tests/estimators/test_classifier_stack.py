"""The classifier's stack on tables: what it says of itself, files, shares, relevances and calibration."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import log_softmax, logsumexp

import gdkl
from gdkl import GDKLClassifier, infinite, metrics
from gdkl.estimators import classifiers
from gdkl.methods import STUDENT, fit_stacked_classes

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
Y = (2 * X[:, 0] + RNG.logistic(size=120) > 0).astype(int)


def fitted(X=X, y=Y, **options):
    return GDKLClassifier(n_iter=5, random_state=0, **options).fit(X, y)


@pytest.mark.parametrize("classes", [2, 3])
def test_weights_and_relevances_say_who_speaks_and_what_matters(classes, tmp_path):
    y = Y if classes == 2 else np.digitize(X[:, 0], [-0.5, 0.5])
    model = fitted(y=y)
    assert model.weights_.sum() == pytest.approx(1)
    assert list(model.weights_.index) == ["isotropic guide", "guide 0.6", "guide 1.5", STUDENT]
    assert model.guide_share_ == pytest.approx(1 - model.weights_[STUDENT])
    assert model.relevance_.argmax() == 0
    assert model.relevance_.shape == (4,)
    model.save(tmp_path / "model.gdkl")
    again = gdkl.load(tmp_path / "model.gdkl")
    pd.testing.assert_series_equal(again.weights_, model.weights_)
    np.testing.assert_array_equal(again.relevance_, model.relevance_)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert (again.temperature_, again.guide_share_) == (model.temperature_, model.guide_share_)


def test_a_prediction_is_the_weighted_mean_of_tempered_models():
    model = fitted()
    [rows] = model._scaled_views(X)
    parts = []
    for part, T in zip(model.stack_.models.values(), model.stack_.temperatures.tolist(), strict=True):
        members = model._member_log_probs(part, rows, model.sampling_seed_)[0].numpy()
        parts.append(log_softmax((logsumexp(members, axis=0) - np.log(len(members))) / T, axis=0))
    mixed = logsumexp(np.stack(parts), axis=0, b=model.weights_.to_numpy()[:, None, None])
    np.testing.assert_allclose(
        model.predict_proba(X).T, np.exp(log_softmax(mixed / model.temperature_, axis=0)), atol=1e-9
    )


def test_a_category_has_one_relevance():
    frame = pd.DataFrame({"size": X[:, 0], "town": np.array(["a", "b", "c", "d"])[np.arange(120) % 4]})
    model = fitted(frame)
    assert list(model.relevance_.index) == ["size", "town"]
    factors = model.stack_.models["guide 1.5"].embed.template.factors
    assert torch.equal(factors[1:], factors[1].expand(len(factors) - 1))
    assert factors[0] > factors[1]


@pytest.mark.parametrize("share", [0, 0.25, 1])
def test_a_given_share(share):
    model = fitted(guide_share=share)
    assert model.weights_[STUDENT] == pytest.approx(1 - share)
    assert model.guide_share_ == pytest.approx(share)
    assert (len(model.weights_) == 1) == (share == 0)


def test_noisy_labels_make_unsure_and_clean_ones_sure():
    y = RNG.integers(0, 2, 120)
    assert fitted(y=y).predict_proba(RNG.normal(size=(200, 4))).max(axis=1).mean() < 0.7
    clean = (X[:, 0] > 0).astype(int)
    test = RNG.normal(size=(400, 4))
    model = fitted(y=clean)
    assert metrics.nll(model.predict_proba(test), test[:, 0] > 0) < 0.25


@pytest.mark.parametrize("guide", [infinite.mlp(1, activation="erf"), lambda a, b: torch.exp(-torch.cdist(a, b))])
def test_a_guide_of_the_users_own(guide):
    model = fitted(guide=guide)
    assert metrics.nll(model.predict_proba(X), Y) < 0.6
    assert (len(model.weights_) == 4) == isinstance(guide, infinite.InfiniteNetwork)


def test_members_classes_that_folds_lack_and_single_precision():
    y = Y.copy()
    y[7] = 2
    model = fitted(y=y, n_members=2, dtype="float32")
    assert model.model_.members == 8
    assert model.predict_proba(X).shape == (120, 3)
    assert np.isfinite(model.predict_log_proba(X)).all()


def test_what_a_user_names_reaches_the_method(monkeypatch):
    found = {}

    def fit(*args, **options):
        found.update(options)
        return fit_stacked_classes(*args, **options)

    monkeypatch.setattr(classifiers, "fit_stacked_classes", fit)
    fitted(beta=0.5, guide_share=0.5, n_members=2, augment=False)
    assert (found["beta"], found["guide_share"], found["times"], found["recombined"]) == (0.5, 0.5, 2, ())
    found.clear()
    for options in ({"likelihood": "dirichlet"}, {"likelihood": "gaussian"}, {"preset": "paper"}):
        assert len(fitted(**options).weights_) <= 2
    assert not found
