"""NNGPRegressor(relevance=True): which columns count, in the user's own terms, in the file, and in predictions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import gdkl
from gdkl import NNGPRegressor, infinite
from gdkl.guide import fit_relevance
from gdkl.numerics import OptionError


def _data(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5)) * [1, 20, 1, 0, 1] + 3
    y = np.sin(2 * X[:, 2]) + 0.02 * X[:, 1] + 0.05 * rng.standard_normal(n)
    return X, y


pytestmark = pytest.mark.filterwarnings("ignore:Constant column")


@pytest.fixture(scope="module")
def fitted():
    with pytest.warns(UserWarning, match="Constant column"):
        return NNGPRegressor(relevance=True).fit(*_data())


def test_relevances_are_those_of_the_columns(fitted):
    assert fitted.relevance_.shape == (5,)
    assert fitted.relevance_[3] == 0  # the constant column
    assert set(np.argsort(fitted.relevance_)[-2:]) == {1, 2}
    assert NNGPRegressor().fit(*_data()).__dict__.get("relevance_") is None


def test_predictions_are_those_of_the_network_with_multiplied_columns(fitted):
    X, y = _data()
    new, wanted = _data(seed=1)
    rows = (X - X.mean(0)) / np.where(X.std(0) > 0, X.std(0), 1) * fitted.relevance_
    asked = (new - X.mean(0)) / np.where(X.std(0) > 0, X.std(0), 1) * fitted.relevance_
    kept = fitted.relevance_ > 0
    net = infinite.mlp()
    K, K21 = net.kernel(rows[:, kept]), net.kernel(asked[:, kept], rows[:, kept])
    scale = float(fitted.model_.posterior.kernel.scale)
    noise = float(fitted.model_.noise)
    mean = K21 @ np.linalg.solve(K + noise / scale * np.eye(len(y)), (y - y.mean()) / y.std())
    np.testing.assert_allclose(fitted.predict(new), mean * y.std() + y.mean(), rtol=1e-6)
    assert fitted.score(new, wanted) > NNGPRegressor().fit(X, y).score(new, wanted) + 0.05


def test_a_file_keeps_them(fitted, tmp_path):
    fitted.save(tmp_path / "m.gdkl")
    loaded = gdkl.load(tmp_path / "m.gdkl")
    new, _ = _data(seed=1)
    np.testing.assert_array_equal(loaded.predict(new), fitted.predict(new))
    np.testing.assert_array_equal(loaded.relevance_, fitted.relevance_)
    assert loaded.relevance is True


def test_names_and_several_outputs(tmp_path):
    X, y = _data()
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"])
    m = NNGPRegressor(relevance=True).fit(frame, np.column_stack([y, np.sin(3 * X[:, 0])]))
    assert list(m.relevance_.index) == ["a", "b", "c"]
    assert m.predict(frame).shape == (80, 2)
    m.save(tmp_path / "m.gdkl")
    pd.testing.assert_frame_equal(gdkl.load(tmp_path / "m.gdkl").relevance_, m.relevance_, check_names=False)
    # Column c matters for one output alone, and column a for the other.
    alone = NNGPRegressor(relevance=True).fit(frame, y)
    assert m.relevance_.loc["a", "relevance"] > 3 * alone.relevance_.loc["a", "relevance"]


def test_other_kernels_have_relevances_too():
    X, y = _data()
    m = NNGPRegressor(guide=infinite.mlp(hidden_layers=1, activation="erf"), relevance=True).fit(X[:, :3], y)
    assert set(np.argsort(m.relevance_)[-2:]) == {1, 2}
    rows = torch.as_tensor((X[:, :3] - X[:, :3].mean(0)) / X[:, :3].std(0))
    fit = fit_relevance(m.guide, rows, torch.as_tensor((y - y.mean()) / y.std()), deviation=1.0)
    np.testing.assert_allclose(m.relevance_, fit.multipliers, rtol=1e-8)


def test_bad_options_are_refused():
    X, y = _data()
    with pytest.raises(OptionError, match="relevance='yes' is not allowed"):
        NNGPRegressor(relevance="yes").fit(X, y)

    def no_gradient(x1, x2):
        return torch.exp(-torch.cdist(x1.detach(), x2.detach()))

    with pytest.raises(OptionError, match="gradients"):
        NNGPRegressor(guide=no_gradient, relevance=True).fit(X[:, :3], y)
