"""A classifier read back from its file is the classifier that was saved."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from classifier_cases import MAKERS, images, table
from torch import nn

import gdkl
from gdkl import GdklError, infinite


def _same(a, b, X):
    p, q = a.predict_distribution(X), b.predict_distribution(X)
    np.testing.assert_allclose(q.probs, p.probs, rtol=0, atol=1e-12)
    np.testing.assert_allclose(q.latent_mean, p.latent_mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(q.latent_variance, p.latent_variance, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(b.classes_, a.classes_)
    assert b.classes_.dtype == a.classes_.dtype
    pd.testing.assert_frame_equal(a.history_, b.history_)
    if hasattr(a, "guide_report_"):
        pd.testing.assert_frame_equal(a.guide_report_, b.guide_report_)
    for attribute in ("n_iter_", "temperature_", "image_shape_", "n_features_in_"):
        assert getattr(a, attribute) == getattr(b, attribute)
    assert type(a) is type(b)


@pytest.mark.parametrize("names", [[0, 1, 2], ["no", "so-so", "yes"]])
@pytest.mark.parametrize("name", MAKERS)
def test_load_of_save_predicts_the_same(name, names, tmp_path):
    X, y = table(40)
    model = MAKERS[name]().fit(X, np.array(names)[y])
    model.save(tmp_path / "model.gdkl")
    loaded = gdkl.load(tmp_path / "model.gdkl")
    _same(model, loaded, X)
    assert loaded.get_params() == model.get_params()


@pytest.mark.parametrize(
    "options",
    [
        {"n_members": 2},
        {"feature_net": [7, 3], "calibrate": False, "milestones": (0.5, 0.9)},
        {"dtype": "float32"},
        {"guide": "auto", "likelihood": "gaussian"},
        {"guide": infinite.mlp(2, activation="erf")},
    ],
)
def test_options_survive(options, tmp_path):
    X, y = table(40)
    model = MAKERS["gdkl"](**options).fit(X, y)
    model.save(tmp_path / "model.gdkl")
    _same(model, gdkl.load(tmp_path / "model.gdkl"), X)


@pytest.mark.parametrize("name", ["nn", "nngp"])
def test_more_options_survive(name, tmp_path):
    X, y = table(40)
    options = {"n_members": 2, "dtype": "float32"} if name == "nn" else {"guide": "auto"}
    model = MAKERS[name](calibrate=True, **options).fit(X, y)
    model.save(tmp_path / "model.gdkl")
    loaded = gdkl.load(tmp_path / "model.gdkl")
    _same(model, loaded, X)
    np.testing.assert_array_equal(loaded.fit(X, y).predict_proba(X), model.predict_proba(X))


class Small(nn.Module):
    def __init__(self, channels=2):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2))

    def forward(self, x):
        return self.layers(x).flatten(1)


@pytest.mark.filterwarnings("ignore::gdkl.numerics.DataWarning")
@pytest.mark.parametrize("name", ["gdkl", "nn"])
def test_a_network_over_images_is_rebuilt_by_its_factory(name, tmp_path):
    X, y = images()
    model = MAKERS[name](feature_net=Small, n_iter=5).fit(X, y)
    model.save(tmp_path / "model.gdkl")
    _same(model, gdkl.load(tmp_path / "model.gdkl", factories={"feature_net": Small}), X)
    with pytest.raises(GdklError, match=r"custom feature_net.*factories"):
        gdkl.load(tmp_path / "model.gdkl")


@pytest.mark.filterwarnings("ignore::gdkl.numerics.DataWarning")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("nn", {"n_iter": 1}),
        ("gdkl", {"feature_net": [6, 2]}),
        ("nngp", {"guide": "auto"}),
        ("nngp", {"guide": infinite.Sequential(infinite.Conv2d(3), infinite.Flatten(), infinite.Linear())}),
    ],
)
def test_models_of_images_survive(name, options, tmp_path):
    X, y = images(8, shape=(1, 8, 8))
    model = MAKERS[name](**options).fit(X, y)
    model.save(tmp_path / "model.gdkl")
    loaded = gdkl.load(tmp_path / "model.gdkl")
    _same(model, loaded, X)
    with pytest.raises(GdklError, match="fitted to images of shape"):
        loaded.predict(X.reshape(8, -1))


def test_column_names_survive(tmp_path):
    X, y = table(30)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    model = MAKERS["nngp"]().fit(frame, y)
    model.save(tmp_path / "model.gdkl")
    loaded = gdkl.load(tmp_path / "model.gdkl")
    _same(model, loaded, frame)
    with pytest.raises(GdklError, match="feature names"):
        loaded.predict(frame.rename(columns={"a": "z"}))


def test_a_plain_functions_guide_is_passed_again(tmp_path):
    X, y = table(30)

    def plain(a, b):
        return torch.exp(-torch.cdist(a, b))

    model = MAKERS["nngp"](guide=plain).fit(X, y)
    model.save(tmp_path / "model.gdkl")
    _same(model, gdkl.load(tmp_path / "model.gdkl", factories={"guide": plain}), X)


def test_labels_that_no_file_holds_are_refused(tmp_path):
    X, y = table(30)
    model = MAKERS["nngp"]().fit(X, y)
    model.classes_ = np.array([np.datetime64("2020-01-01"), np.datetime64("2021-01-01"), np.datetime64("2022-01-01")])
    with pytest.raises(GdklError, match="cannot be saved"):
        model.save(tmp_path / "model.gdkl")
