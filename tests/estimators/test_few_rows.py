"""One row, two rows, a constant target: the prior says how far other rows may be."""

from __future__ import annotations

import numpy as np
import pytest
from regressor_cases import MAKERS, table
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

import gdkl
from gdkl import DKLRegressor, GDKLRegressor, GPRegressor, NNGPRegressor
from gdkl.gp import NOISE_START
from gdkl.numerics import DataError, DataWarning

FEW = MAKERS | {
    "paper gdkl": lambda: GDKLRegressor(n_iter=20, preset="paper", random_state=0),
    "ard gp": lambda: GPRegressor(ard=True),
}
FAR = np.array([[3.0, -40.0, 0.5, 9.0], [9.0, 40.0, 0.0, -5.0]])


@pytest.mark.parametrize("name", FEW)
def test_one_row_is_believed_and_others_may_be_a_unit_away(name):
    X, _ = table(1)
    model = FEW[name]().fit(X, [7.0])
    mean, std = model.predict(np.concatenate([X, FAR]), return_std=True)
    assert mean[0] == pytest.approx(7.0)
    assert np.isfinite(mean).all()
    assert std[0] < 0.4
    # A standard deviation of 1, times what the kernel's variance grows by.
    assert (std[1:] > 0.5).all()
    assert (std[1:] < 200).all()
    assert model.noise_ == pytest.approx(NOISE_START)


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("n", [2, 3, 5])
def test_few_rows_give_finite_and_wide_predictions(name, n):
    X, y = table(n)
    model = FEW[name]().fit(X, y)
    p = model.predict_distribution(np.concatenate([X, FAR]))
    assert np.isfinite(p.mean).all()
    assert (p.std[n:] > 0.3 * np.std(y)).all()
    assert (p.std[n:] >= 0.99 * p.std[:n].min()).all()
    assert (np.abs(p.mean[:n] - y) < 4 * p.std[:n]).all()
    assert np.isfinite(p.log_prob(np.append(y, [100.0, 100.0]))).all()


@pytest.mark.parametrize("name", FEW)
def test_a_constant_target_is_predicted_with_the_prior_beside_it(name):
    X, _ = table(20)
    model = FEW[name]().fit(X, np.full(20, 1e3 + 0.1))
    mean, std = model.predict(np.concatenate([X, FAR]), return_std=True)
    np.testing.assert_allclose(mean, 1e3 + 0.1, rtol=1e-6)
    assert (std[:20] < 0.5).all()
    assert (std[20:] > 1.5 * std[:20].min()).all()
    assert (std[20:] > 0.3).all()


@pytest.mark.parametrize("n", [1, 20])
def test_targets_that_tell_nothing_are_those_of_scikit_learn(n):
    X, _ = table(20)
    X, y = X[:n], np.full(n, 4.0)
    model = GPRegressor().fit(X, y)
    typical = float(model.model_.posterior.kernel.kernel.base_kernel.lengthscale)
    # Standardised rows: the typical squared distance of two of them, or with themselves.
    assert typical == pytest.approx(np.sqrt(2 * X.shape[1]), rel=1e-6)
    scale = X.std(axis=0) if n > 1 else np.ones(4)
    peer = GaussianProcessRegressor(RBF(typical), alpha=NOISE_START, optimizer=None, normalize_y=True)
    peer.fit((X - X.mean(axis=0)) / scale, y)
    mean, std = peer.predict((FAR - X.mean(axis=0)) / scale, return_std=True)
    p = model.predict_distribution(FAR)
    np.testing.assert_allclose(p.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(np.sqrt(p.latent_variance), std, rtol=1e-7)


@pytest.mark.parametrize("name", FEW)
def test_a_constant_output_beside_others_does_not_change_them(name):
    X, y = table(20)
    both = FEW[name]().fit(X, np.stack([y, np.full(20, 3.0)], axis=1))
    p = both.predict_distribution(np.concatenate([X, FAR]))
    assert np.isfinite(p.variance).all()
    np.testing.assert_allclose(p.mean[:, 1], 3, atol=0.2)
    assert (p.std[20:, 1] > 0.25).all()
    if name in ("nngp", "relevant nngp", "gp"):
        alone = FEW[name]().fit(X, y).predict_distribution(np.concatenate([X, FAR]))
        # L-BFGS of both outputs may end elsewhere in a flat valley.
        np.testing.assert_allclose(p.output(0).mean, alone.mean, rtol=1e-3)
        np.testing.assert_allclose(p.output(0).std, alone.std, rtol=2e-2)


def test_fewer_than_four_rows_have_no_student(tmp_path):
    X, y = table(4)
    guides = GDKLRegressor(n_iter=3, random_state=0).fit(X[:3], y[:3])
    assert list(guides.weights_.index) == ["isotropic guide", "guide 0.6", "guide 1.5", "smooth guide"]
    np.testing.assert_allclose(guides.weights_, 0.25)
    assert guides.relevance_.shape == (4,)
    assert guides.n_iter_ == 1
    assert set(guides.history_.columns) >= {"objective", "noise"}
    assert list(GDKLRegressor(n_iter=3, random_state=0).fit(X, y).weights_.index)[-1] == "student"
    guides.save(tmp_path / "guides.gdkl")
    again = gdkl.load(tmp_path / "guides.gdkl")
    assert (again.predict(FAR) == guides.predict(FAR)).all()
    assert list(again.weights_.index) == list(guides.weights_.index)


@pytest.mark.parametrize("name", FEW)
def test_rows_at_one_place_are_a_mean_with_noise(name):
    X = np.ones((6, 4))
    y = np.array([1.0, 3.0, 1.0, 3.0, 1.0, 3.0])
    with pytest.warns(DataWarning, match="all rows are at one place"):
        model = FEW[name]().fit(X, y)
    mean, std = model.predict(np.concatenate([X[:1], FAR]), return_std=True)
    assert mean[0] == pytest.approx(2, abs=0.05)
    # What trains for a few steps has not learned the noise; BoTorch's prior wants little.
    assert (0.1 if name in ("dkl", "paper gdkl") else 0.6) < std[0] < 1.4
    assert np.isfinite(std).all()


@pytest.mark.filterwarnings("error")
def test_nothing_is_warned_of_with_one_row():
    NNGPRegressor(relevance=True).fit([[0.3, 0.2]], [1.0])
    GDKLRegressor(random_state=0).fit([[0.3, 0.2]], [1.0])


def test_what_is_known_of_the_noise_of_few_rows_counts():
    X, _ = table(2)
    y = np.array([5.0, 5.0])
    p = NNGPRegressor(relevance=True).fit(X, y, noise_var=[0.0, 9.0]).predict_distribution(X)
    assert p.latent_variance[0] < 0.5 * p.latent_variance[1]


def test_mini_batches_need_targets_that_vary():
    X, _ = table(40)
    for kind in (GDKLRegressor, DKLRegressor):
        model = kind(inference="sparse", n_inducing=5, n_iter=2, random_state=0)
        with pytest.raises(DataError, match="y is constant: use inference='exact'"):
            model.fit(X, np.ones(40))


@pytest.mark.parametrize("name", ["gdkl", "relevant nngp"])
def test_duplicates_and_outputs_among_few_rows(name):
    X, y = table(3, outputs=2)
    X = np.concatenate([X, X])
    p = MAKERS[name]().fit(X, np.concatenate([y, y])).predict_distribution(FAR)
    assert p.shape == (2, 2)
    assert np.isfinite(p.variance).all()
