"""The one guide of a student, of images and Dirichlet targets: how it is mixed in, and when there is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from classifier_cases import MAKERS, images, table
from scipy.special import log_softmax
from sklearn.base import clone

import gdkl
from gdkl import GdklError, infinite

OPTIONS = pytest.mark.parametrize(
    ("options", "classes"),
    [
        ({}, 2),
        ({}, 3),
        ({"calibrate": False}, 3),
        ({"likelihood": "gaussian"}, 3),
        ({"n_members": 2}, 3),
        ({"guide": "auto"}, 2),
        ({"guide": infinite.mlp(1, activation="erf"), "dtype": "float32"}, 3),
    ],
)


def _untempered(model, X):
    """Probabilities before the temperature."""
    return np.exp(log_softmax(model.predict_log_proba(X) * model.temperature_, axis=1))


@OPTIONS
def test_a_prediction_is_the_mean_of_student_and_guide(options, classes):
    X, y = table(60, classes)
    share, options = 0.3, {"n_iter": 10, "likelihood": "dirichlet", **options}
    model, alone = (MAKERS["gdkl"](**options, guide_share=w).fit(X[:40], y[:40]) for w in (share, 0))
    mixed, student = (fitted.predict_distribution(X) for fitted in (model, alone))
    of_guide = {name: value for name, value in options.items() if name not in ("n_members", "n_iter")}
    guide_model = MAKERS["nngp"](**{"calibrate": True, **of_guide}).fit(X[:40], y[:40])
    assert model.guide_share_ == share
    # Student and guide share one temperature, and the mixture is what it is applied to.
    assert model.temperature_ == guide_model.temperature_
    parts = [np.exp(log_softmax(p * model.temperature_, axis=1)) for p in (student.log_probs, _log(guide_model, X))]
    expected = (1 - share) * parts[0] + share * parts[1]
    tolerance = 1e-5 if options.get("dtype") == "float32" else 1e-9
    np.testing.assert_allclose(_untempered(model, X), expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(mixed.probs.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_array_equal(mixed.mode, model.classes_[expected.argmax(axis=1)])
    # What is known of rows unlike any other stays the student's.
    np.testing.assert_array_equal(mixed.latent_variance, student.latent_variance)
    np.testing.assert_array_equal(mixed.latent_mean, student.latent_mean)


def _log(model, X):
    return model.predict_distribution(X).log_probs


def test_a_share_of_one_is_the_guide():
    X, y = table(50)
    guide = MAKERS["nngp"](calibrate=True).fit(X[:40], y[:40])
    model = MAKERS["gdkl"](guide_share=1, likelihood="dirichlet").fit(X[:40], y[:40])
    np.testing.assert_allclose(model.predict_proba(X), guide.predict_proba(X), rtol=1e-12)


def test_tables_have_it_and_what_has_no_use_for_it_does_not():
    X, y = table(40)
    options = {"likelihood": "dirichlet"}
    assert MAKERS["gdkl"](**options).fit(X, y).guide_share_ == 0.5
    trusting = MAKERS["gdkl"](beta=0, **options).fit(X, y)
    assert trusting.guide_share_ == 0
    assert list(trusting.weights_.index) == ["student"]
    given, default = (MAKERS["gdkl"](guide_share=w, **options).fit(X, y).predict_proba(X) for w in (0.5, None))
    np.testing.assert_array_equal(given, default)


@pytest.mark.filterwarnings("ignore::gdkl.numerics.DataWarning")
@pytest.mark.parametrize("share", [0.25, 0.5])
def test_images_have_a_quarter_or_half(share, tmp_path):
    X, y = images(60)
    if share == 0.25:
        # A guide that has nothing to know.
        y = np.random.default_rng(0).permutation(y)
    plain, mixed = (MAKERS["gdkl"](feature_net=[6, 3], guide_share=w).fit(X, y) for w in (0, None))
    assert (plain.guide_share_, mixed.guide_share_) == (0, share)
    guide = MAKERS["nngp"](calibrate=True).fit(X, y)
    expected = (1 - share) * _untempered(plain, X) + share * _untempered(guide, X)
    np.testing.assert_allclose(_untempered(mixed, X), expected, atol=1e-6)
    mixed.save(tmp_path / "model.gdkl")
    np.testing.assert_array_equal(gdkl.load(tmp_path / "model.gdkl").predict_proba(X), mixed.predict_proba(X))


@pytest.mark.filterwarnings("ignore::gdkl.numerics.DataWarning")
def test_a_guide_of_images_sets_the_temperature_if_it_knows_enough():
    X, y = images(60)
    knowing = MAKERS["gdkl"](feature_net=[6, 3]).fit(X, y)
    guide = MAKERS["nngp"](calibrate=True).fit(X, y)
    assert guide.guide_report_.held_out_log_likelihood[0] > -0.75 * np.log(2)
    assert knowing.temperature_ == pytest.approx(guide.temperature_, rel=1e-6)
    guessing = MAKERS["gdkl"](feature_net=[6, 3]).fit(X, np.random.default_rng(0).permutation(y))
    assert guessing.guide_report_.held_out_log_likelihood[0] < -0.75 * np.log(2)
    assert guessing.temperature_ == 1
    assert MAKERS["gdkl"](feature_net=[6, 3], calibrate=False).fit(X, y).temperature_ == 1


def test_inducing_points_have_none():
    X, y = table(60)
    options = {"inference": "sparse", "n_iter": 5, "batch_size": 16, "feature_net": [8, 4]}
    for share in (None, 0):
        model = MAKERS["gdkl"](**options, guide_share=share).fit(X, y)
        assert model.guide_share_ == 0
    with pytest.raises(GdklError, match=r"guide_share=0.5 needs exact inference.*inference='exact'"):
        MAKERS["gdkl"](**options, guide_share=0.5).fit(X, y)
    loader = torch.utils.data.TensorDataset(torch.as_tensor(X), torch.as_tensor(y))
    with pytest.raises(GdklError, match=r"guide_share=0.5 needs exact inference"):
        MAKERS["gdkl"](guide_share=0.5, n_iter=5, batch_size=16).fit(loader)


def test_a_second_fit_follows_the_option():
    X, y = table(24)
    model = MAKERS["gdkl"](n_iter=5).fit(X, y)
    student = clone(model).set_params(guide_share=0).fit(X, y)
    assert student.guide_share_ == 0
    again = model.set_params(guide_share=0).fit(X, y)
    assert list(again.stack_.models) == ["student"]
    np.testing.assert_array_equal(again.predict_proba(X), student.predict_proba(X))


@pytest.mark.parametrize(
    "options",
    [{}, {"n_members": 2}, {"dtype": "float32"}, {"guide": "auto"}, {"likelihood": "gaussian"}, {"guide_share": 0.9}],
)
def test_the_guide_is_in_the_file(options, tmp_path):
    X, y = table(30)
    model = MAKERS["gdkl"](**{"n_iter": 5, **options}).fit(X[:24], y[:24])
    model.save(tmp_path / "model.gdkl")
    loaded = gdkl.load(tmp_path / "model.gdkl")
    assert loaded.guide_share_ == model.guide_share_ > 0
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    loaded.save(tmp_path / "again.gdkl")
    assert (tmp_path / "again.gdkl").read_bytes() == (tmp_path / "model.gdkl").read_bytes()


def test_a_guide_of_the_users_own_comes_back_by_its_factory(tmp_path):
    X, y = table(40)

    def plain(a, b):
        return torch.exp(-torch.cdist(a, b))

    model = MAKERS["gdkl"](guide=plain).fit(X, y)
    model.save(tmp_path / "model.gdkl")
    loaded = gdkl.load(tmp_path / "model.gdkl", factories={"guide": plain})
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
