"""Intervals, quantiles, latent covariances, features: as arrays, tensors and DataFrames."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from regressor_cases import MAKERS, table
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from gdkl import DKLClassifier, DKLRegressor, GDKLRegressor, GPRegressor, NNGPRegressor
from gdkl.numerics import NotFittedError, OptionError

X, Y = table(40)
MODEL = NNGPRegressor().fit(X, Y)


def test_arrays_have_a_column_per_end_and_per_probability():
    p = MODEL.predict_distribution(X)
    np.testing.assert_array_equal(MODEL.predict_interval(X, coverage=0.8), np.stack(p.interval(0.8), axis=1))
    np.testing.assert_array_equal(MODEL.predict_interval(X), np.stack(p.interval(0.9), axis=1))
    np.testing.assert_array_equal(MODEL.predict_quantiles(X), p.quantile([0.05, 0.5, 0.95]).T)
    np.testing.assert_array_equal(MODEL.predict_quantiles(X, 0.3), p.quantile(0.3)[:, None])


@pytest.mark.parametrize("given", ["pandas", "pyarrow"])
def test_dataframes_keep_their_index(given):
    frame = pd.DataFrame(X, columns=list("abcd"), index=[f"row {i}" for i in range(40)])
    model = NNGPRegressor().fit(frame, Y)
    asked = frame[5:9]
    if given == "pyarrow":
        asked = pytest.importorskip("pyarrow").Table.from_pandas(asked)
    interval, quantiles = model.predict_interval(asked, 0.5), model.predict_quantiles(asked, alpha=[0.25, 0.75])
    assert list(interval.columns) == ["lower", "upper"]
    assert list(quantiles.columns) == [0.25, 0.75]
    assert list(interval.index) == list(quantiles.index) == list(frame.index[5:9])
    np.testing.assert_array_equal(interval, quantiles)


def test_several_outputs_come_under_their_numbers():
    X, y = table(40, outputs=2)
    model = NNGPRegressor().fit(X, y)
    p = model.predict_distribution(X)
    quantiles = model.predict_quantiles(X, alpha=[0.1, 0.5, 0.9])
    assert quantiles.shape == (40, 2, 3)
    np.testing.assert_array_equal(quantiles[:, 1], p.output(1).quantile([0.1, 0.5, 0.9]).T)
    frame = NNGPRegressor().fit(pd.DataFrame(X), y).predict_interval(pd.DataFrame(X))
    np.testing.assert_allclose(frame[1]["upper"], p.interval(0.9)[1][:, 1], rtol=1e-9)
    assert list(frame.columns) == [(0, "lower"), (0, "upper"), (1, "lower"), (1, "upper")]
    named = NNGPRegressor().fit(X, pd.DataFrame(y, columns=["price", "rent"])).predict_quantiles(pd.DataFrame(X), 0.5)
    assert list(named.columns) == [("price", 0.5), ("rent", 0.5)]


@pytest.mark.parametrize("value", [0, 1, 1.5, "most", [0.5, 0.9], None])
def test_probabilities_that_are_none_are_refused(value):
    with pytest.raises(OptionError, match="coverage must be one number strictly between 0 and 1"):
        MODEL.predict_interval(X, coverage=value)
    if not isinstance(value, list):
        with pytest.raises(OptionError, match="alpha must be numbers strictly between 0 and 1"):
            MODEL.predict_quantiles(X, alpha=value)
    with pytest.raises(NotFittedError):
        NNGPRegressor().predict_interval(X)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_a_tensor_gives_tensors(dtype):
    rows = torch.tensor(X[:6]).to(dtype)
    expected = MODEL.predict_distribution(rows)
    wanted = torch.float64 if dtype == torch.float16 else dtype
    mean, std = MODEL.predict(rows, return_std=True)
    for found, value in [
        (mean, expected.mean),
        (std, expected.std),
        (MODEL.predict(rows.requires_grad_()), expected.mean),
        (MODEL.predict(rows, return_cov=True)[1], MODEL.predict(rows.detach().numpy(), return_cov=True)[1]),
        (MODEL.predict_interval(rows), np.stack(expected.interval(0.9), axis=1)),
        (MODEL.predict_quantiles(rows), expected.quantile([0.05, 0.5, 0.95]).T),
        (MODEL.latent_covariance(rows), MODEL.latent_covariance(rows.detach().numpy())),
        (MODEL.sample_y(rows, 3), MODEL.sample_y(rows.detach().numpy(), 3)),
    ]:
        assert isinstance(found, torch.Tensor)
        assert (found.dtype, found.device, found.requires_grad) == (wanted, rows.device, False)
        np.testing.assert_allclose(found.double(), value, rtol=1e-6, atol=1e-4)
    assert isinstance(expected.mean, np.ndarray)
    assert MODEL.score(rows.double(), torch.tensor(Y[:6])) == pytest.approx(MODEL.score(X[:6], Y[:6]), abs=2e-2)


@pytest.mark.parametrize("name", ["gdkl", "gp"])
@pytest.mark.parametrize("outputs", [None, 2])
def test_latent_covariance_is_the_noisy_one_less_the_noise(name, outputs):
    X, y = table(40, outputs=outputs)
    model = MAKERS[name](**({"n_iter": 3} if name == "gdkl" else {})).fit(X, y)
    p = model.predict_distribution(X[:7])
    latent, noisy = model.latent_covariance(X[:7]), model.predict(X[:7], return_cov=True)[1]
    noise = (p.variance - p.latent_variance).reshape(7, -1)
    expected = np.stack([np.diag(noise[:, k]) for k in range(noise.shape[1])], axis=-1)
    np.testing.assert_allclose((noisy - latent).reshape(expected.shape), expected, rtol=1e-6, atol=1e-9)


def test_latent_covariance_of_a_warped_target_has_the_latent_variances():
    x = np.linspace(0, 6, 30).reshape(-1, 1)
    model = GDKLRegressor(n_iter=2, warp="log", random_state=0).fit(x, np.exp(np.sin(x[:, 0])))
    p = model.predict_distribution(x[::3])
    np.testing.assert_allclose(np.diag(model.latent_covariance(x[::3])), p.latent_variance, rtol=1e-3)
    assert np.linalg.eigvalsh(model.latent_covariance(x[::3])).min() > -1e-6


@pytest.mark.parametrize("kind", [GDKLRegressor, DKLRegressor])
def test_features_are_what_the_networks_say(kind):
    def network(columns):
        return torch.nn.Linear(columns, 3)

    model = kind(n_iter=2, feature_net=network, n_members=2, preset="paper", random_state=0).fit(X, Y)
    features = model.transform(X)
    assert features.shape == (40, 6)
    rows = torch.tensor((X - X.mean(axis=0)) / X.std(axis=0))
    stacked = dict(model.model_.embed.named_parameters())
    weight, bias = stacked.values()
    expected = torch.cat([rows @ weight[k].T + bias[k] for k in range(2)], dim=1)
    np.testing.assert_allclose(features, expected.detach(), rtol=1e-6)
    assert list(model.get_feature_names_out()) == [f"{kind.__name__.lower()}{i}" for i in range(6)]


def test_features_go_into_another_estimator():
    options = {"n_iter": 5, "feature_net": [8, 3], "random_state": 0}
    pipeline = make_pipeline(GDKLRegressor(**options).set_output(transform="pandas"), LinearRegression()).fit(X, Y)
    assert pipeline[-1].feature_names_in_[0] == "gdklregressor0"
    assert pipeline[-1].coef_.shape == (12,)
    student = GDKLRegressor(**options)
    np.testing.assert_array_equal(clone(student).fit_transform(X, Y), student.fit(X, Y).transform(X))
    with pytest.raises(OptionError, match="guides predict alone"):
        GDKLRegressor().fit(X[:3], Y[:3]).transform(X)
    assert not hasattr(GPRegressor(), "transform")


def test_classifiers_have_features_and_probabilities_as_tensors():
    images, labels = torch.rand(24, 1, 6, 6), np.arange(24) % 3

    class Flat(torch.nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.inner = torch.nn.Linear(36, 5)

        def forward(self, x):
            return self.inner(x.flatten(1))

    model = DKLClassifier(n_iter=2, feature_net=Flat, views="mirrored", random_state=0).fit(images, labels)
    scaled = (images.double() - images.double().mean()) / images.double().std(correction=0)
    inner = model.model_.embed.single.get_submodule("network.inner")
    expected = scaled.flatten(1).float() @ inner.weight.float().T + inner.bias.float()
    np.testing.assert_allclose(model.transform(images), expected.detach(), atol=1e-4)
    probs = model.predict_proba(images)
    assert isinstance(probs, torch.Tensor)
    assert probs.dtype == torch.float32
    np.testing.assert_allclose(probs, model.predict_proba(images.numpy()), atol=1e-6)
    assert model.predict(images).tolist() == model.classes_[probs.argmax(dim=1)].tolist()
