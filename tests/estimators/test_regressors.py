"""What users rely on: units, intervals, reproducibility, independence of the batch, options."""

from __future__ import annotations

import functools
import itertools
import os
import pickle
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor

import gpytorch
import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from regressor_cases import MAKERS, table
from sklearn.base import clone
from torch import nn

import gdkl
from gdkl import GdklError, GDKLRegressor, GPRegressor, infinite
from gdkl.estimators import fit_together
from gdkl.numerics import DataWarning, InterruptedFitWarning
from gdkl.training import Callback, EarlyStopping, KeepOnInterrupt

ALL = pytest.mark.parametrize("name", MAKERS)


@functools.cache
def fitted(name):
    """A model of the first 60 of the rows of ``table(80)``, for tests that leave it as it is."""
    X, y = table(80)
    return MAKERS[name]().fit(X[:60], y[:60])


@ALL
def test_prediction_does_not_depend_on_its_batch(name):
    X, _ = table(80)
    model = fitted(name)
    whole = model.predict_distribution(X)
    parts = [model.predict_distribution(X[part]) for part in (slice(0, 1), slice(1, 30), slice(30, 80))]
    for quantity in ("mean", "variance", "latent_variance"):
        joined = np.concatenate([getattr(part, quantity) for part in parts])
        np.testing.assert_allclose(joined, getattr(whole, quantity), rtol=0, atol=1e-10)


@ALL
def test_prediction_in_chunks_is_the_prediction(name, monkeypatch):
    X, _ = table(80)
    model = fitted(name)
    whole = model.predict_distribution(X)
    monkeypatch.setattr("gdkl.training.fitted.rows_per_chunk", lambda bytes_per_row: 7)
    chunked = model.predict_distribution(X)
    np.testing.assert_allclose(chunked.mean, whole.mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(chunked.variance, whole.variance, rtol=0, atol=1e-10)


@ALL
def test_std_cov_and_distribution_tell_one_story(name):
    X, _ = table(80)
    model = fitted(name)
    p = model.predict_distribution(X[:9])
    mean, std = model.predict(X[:9], return_std=True)
    same, cov = model.predict(X[:9], return_cov=True)
    np.testing.assert_allclose(mean, p.mean)
    np.testing.assert_allclose(same, mean, rtol=1e-9)
    np.testing.assert_allclose(std**2, p.variance)
    np.testing.assert_allclose(np.diag(cov), std**2, rtol=1e-6)
    noise = p.variance - p.latent_variance
    if name == "nn":  # of which noise_ is the mean over the training rows
        noise = np.mean(model.predict_distribution(X[:60]).variance)
    np.testing.assert_allclose(noise, model.noise_, rtol=1e-6)
    np.testing.assert_allclose(cov, cov.T)
    assert np.linalg.eigvalsh(cov).min() > 0


@ALL
def test_units_are_the_users(name):
    """The same table in other units gives the same model in those units."""
    X, y = table(40)
    # Few steps: training amplifies the rounding of the scaling.
    options = {"n_iter": 10} if "n_iter" in MAKERS[name]().get_params() else {}
    one, two = MAKERS[name](**options).fit(X, y), MAKERS[name](**options).fit(X * 1000 - 3, y / 50 + 7)
    a, b = one.predict_distribution(X), two.predict_distribution(X * 1000 - 3)
    # The searches of a stack end where an iteration gains little, which rounding moves.
    tolerance = 100 if name == "gdkl" else 1
    np.testing.assert_allclose(b.mean, a.mean / 50 + 7, rtol=1e-6 * tolerance)
    np.testing.assert_allclose(b.std, a.std / 50, rtol=1e-4 * tolerance)


@ALL
def test_two_fits_with_one_seed_are_equal_and_leave_the_global_generators_alone(name):
    X, y = table(40)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = MAKERS[name](random_state=3).fit(X, y).predict_distribution(X)
    second = MAKERS[name](random_state=3).fit(X, y).predict_distribution(X)
    np.testing.assert_array_equal(first.mean, second.mean)
    np.testing.assert_array_equal(first.variance, second.variance)
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


@pytest.mark.parametrize("name", ["gdkl", "dkl"])
def test_every_step_reaches_the_model(name):
    """The model returned is the one after the last step, whatever the number of steps."""
    X, y = table(40)
    predictions = [MAKERS[name](n_iter=n, base="paper").fit(X, y).predict(X) for n in (1, 2, 49, 51)]
    for one, two in itertools.pairwise(predictions):
        assert np.abs(one - two).max() > 1e-6


def test_another_seed_is_another_fit():
    X, y = table(40)
    assert not np.array_equal(
        MAKERS["gdkl"](random_state=0).fit(X, y).predict(X), MAKERS["gdkl"](random_state=1).fit(X, y).predict(X)
    )


@ALL
def test_several_outputs_are_the_outputs_alone(name):
    """Independent outputs: plain and infinite-width Gaussian processes must agree exactly, shapes must for all."""
    X, y = table(40, outputs=3)
    model = MAKERS[name]().fit(X, y)
    p = model.predict_distribution(X[:5])
    assert p.mean.shape == p.variance.shape == (5, 3)
    assert model.predict(X[:5], return_cov=True)[1].shape == (5, 5, 3)
    assert model.sample_y(X[:5], 4).shape == (5, 3, 4)
    assert model.score(X, y) > 0.5
    if name == "nngp":
        for o in range(3):
            alone = MAKERS[name]().fit(X, y[:, o]).predict_distribution(X[:5])
            np.testing.assert_allclose(p.mean[:, o], alone.mean, rtol=1e-5)
            np.testing.assert_allclose(p.variance[:, o], alone.variance, rtol=1e-4)


@ALL
def test_joint_samples_have_the_predicted_moments(name):
    X, _ = table(80)
    model = fitted(name)
    mean, cov = model.predict(X[:4], return_cov=True)
    draws = model.sample_y(X[:4], 20_000, random_state=0)
    assert draws.shape == (4, 20_000)
    scale = np.sqrt(np.outer(np.diag(cov), np.diag(cov)))
    np.testing.assert_allclose((draws.mean(1) - mean) / np.sqrt(np.diag(cov)), 0, atol=0.05)
    np.testing.assert_allclose((np.cov(draws) - cov) / scale, 0, atol=0.05)
    np.testing.assert_array_equal(draws, model.sample_y(X[:4], 20_000, random_state=0))


@ALL
def test_estimators_survive_clone_pickle_and_joblib(name, tmp_path):
    X, y = table(30)
    model = MAKERS[name]().fit(X, y)
    expected = model.predict(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), expected)
    joblib.dump(model, tmp_path / "model.joblib")
    np.testing.assert_array_equal(joblib.load(tmp_path / "model.joblib").predict(X), expected)
    np.testing.assert_array_equal(clone(model).fit(X, y).predict(X), expected)


def test_history_has_the_objectives_terms():
    X, y = table(30)
    history = MAKERS["gdkl"]().fit(X, y).history_
    assert list(history.columns) == ["step", "objective", "ell", "kl", "kl_unlabelled", "noise", "learning_rate"]
    assert len(history) == 40
    np.testing.assert_allclose(history.objective, history.ell + history.kl + history.kl_unlabelled)
    assert set(MAKERS["dkl"]().fit(X, y).history_.columns) >= {"objective", "data_fit", "complexity", "noise"}


def test_history_of_a_long_fit_stays_short():
    X, y = table(12)
    model = GDKLRegressor(n_iter=1100, random_state=0, feature_net=[3], preset="paper").fit(X, y)
    assert len(model.history_) == 367


def test_beta_weighs_the_guide():
    X, y = table(40)
    distances = [MAKERS["gdkl"](beta=beta, n_iter=100).fit(X, y).history_.kl[-50:].mean() for beta in (0.0, 1.0, 30.0)]
    assert distances[0] > 1.5 * distances[1]
    assert distances[1] > 1.5 * distances[2]


class Wide(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(columns, 6), nn.Tanh(), nn.Linear(6, 2))

    def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize("feature_net", [[8, 3], (5,), Wide(4), Wide])
def test_any_network(feature_net):
    X, y = table(30)
    model = MAKERS["gdkl"](feature_net=feature_net).fit(X, y)
    assert model.model_.posterior.features.shape[-1] == {list: 3, tuple: 5}.get(type(feature_net), 2)
    assert np.isfinite(model.predict(X)).all()


def test_a_module_given_as_feature_net_is_left_as_it_was():
    X, y = table(30)
    net = Wide(4)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    model = MAKERS["gdkl"](feature_net=net)
    first, second = model.fit(X, y).predict(X), model.fit(X, y).predict(X)
    np.testing.assert_array_equal(first, second)
    for name, value in net.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, before[name])


@pytest.mark.parametrize(
    ("kernel", "outputs"),
    [
        (gpytorch.kernels.MaternKernel(nu=2.5), None),
        (gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel() + gpytorch.kernels.LinearKernel()), 2),
        (gpytorch.kernels.RQKernel(), None),
    ],
)
def test_any_base_kernel(kernel, outputs):
    X, y = table(30, outputs=outputs)
    before = {name: value.clone() for name, value in kernel.state_dict().items()}
    assert MAKERS["gdkl"](base_kernel=kernel, n_iter=20).fit(X, y).score(X, y) > 0.3
    assert GPRegressor(base_kernel=kernel).fit(X, y).score(X, y) > 0.3
    assert all(torch.equal(value, before[name]) for name, value in kernel.state_dict().items())


@pytest.mark.parametrize(
    "guide",
    [
        infinite.mlp(hidden_layers=1, activation="erf"),
        gpytorch.kernels.RBFKernel(),
        lambda a, b: torch.exp(-torch.cdist(a, b)),
    ],
)
def test_any_guide(guide):
    X, y = table(30)
    assert MAKERS["gdkl"](guide=guide).fit(X, y).score(X, y) > 0.3
    assert gdkl.NNGPRegressor(guide=guide).fit(X, y).score(X, y) > 0.3


def test_ard_finds_the_column_that_matters():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.sin(2 * X[:, 1])
    model = GPRegressor(ard=True).fit(X, y)
    lengthscale = model.model_.posterior.kernel.kernel.base_kernel.lengthscale.flatten()
    assert int(lengthscale.argmin()) == 1
    assert float(lengthscale[0]) > 5 * float(lengthscale[1])


def test_an_ensemble_is_the_mixture_of_its_members():
    X, y = table(50)
    model = MAKERS["gdkl"](n_members=3, n_iter=60, guide_share=0).fit(X[:40], y[:40])
    p = model.predict_distribution(X[40:])
    assert p.n_components == 4 * 3
    assert np.ptp(p.component_means, axis=0).min() > 0
    mean, cov = model.predict(X[40:], return_cov=True)
    np.testing.assert_allclose(mean, p.mean, rtol=1e-3)
    np.testing.assert_allclose(np.diag(cov), p.variance, rtol=1e-3)
    with_module = MAKERS["gdkl"](n_members=2, feature_net=Wide(4)).fit(X, y).predict_distribution(X)
    assert np.ptp(with_module.component_means, axis=0).min() > 0


def test_float32_is_allowed_and_close():
    X, y = table(40)
    # Few and small steps: training amplifies rounding, the faster the more.
    for name, options in (("gdkl", {"base": "paper", "n_iter": 15}), ("nngp", {})):
        low, high = (MAKERS[name](dtype=dtype, **options).fit(X, y).predict(X) for dtype in ("float32", "float64"))
        np.testing.assert_allclose(low, high, rtol=2e-2)


def test_early_stopping_is_a_callback():
    X, y = table(30)
    model = GDKLRegressor(n_iter=3000, feature_net=[5], random_state=0, callbacks=[EarlyStopping(0.05, 50)]).fit(X, y)
    assert 50 < model.n_iter_ < 3000


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_gives_a_usable_model_and_says_so():
    class Press(Callback):
        def on_step(self, report):
            if report.step == 25:
                os.kill(os.getpid(), signal.SIGINT)

    X, y = table(30)
    model = GDKLRegressor(n_iter=100_000, random_state=0, callbacks=[Press()])
    with pytest.raises(KeyboardInterrupt, match=r"after 25 steps; the model is usable"):
        model.fit(X, y)
    assert model.n_iter_ == 25
    stopped = model.predict(X)
    assert model.score(X, y) > 0
    model.set_params(callbacks=[Press(), KeepOnInterrupt()])
    with pytest.warns(InterruptedFitWarning, match="after 25 steps"):
        model.fit(X, y)
    assert (model.predict(X) == stopped).all()


@pytest.mark.usefixtures("ctrl_c")
def test_a_fit_that_is_broken_off_leaves_the_model_before_it():
    def twice(report):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    X, y = table(30)
    model = MAKERS["gdkl"]().fit(X, y)
    before = model.predict(X)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(callbacks=[twice]).fit(X[:, :2], y)
    with pytest.raises(GdklError):
        model.fit(X, y[:-1])
    assert (model.predict(X) == before).all()


@pytest.mark.usefixtures("ctrl_c")
def test_fits_that_train_together_stop_as_one():
    def stop(report):
        if report.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    X, y = table(40)
    with pytest.raises(KeyboardInterrupt, match="after 3 steps"):
        fit_together(MAKERS["dkl"](callbacks=[stop]), [(X[:20], y[:20]), (X[20:], y[20:])])


def test_a_plain_function_is_a_callback():
    X, y = table(30)
    seen = []

    def watch(report):
        seen.append(report.values["kl"])
        return report.step == 12

    model = MAKERS["gdkl"](callbacks=[watch]).fit(X, y)
    assert model.n_iter_ == len(seen) == 12


class WithDropout(Wide):
    def forward(self, x):
        return self.inner(nn.functional.dropout(x, 0.2, self.training))


@pytest.mark.parametrize("feature_net", [None, WithDropout])
def test_fits_in_threads_are_the_fits_alone(feature_net):
    X, y = table(20)
    # A stack of guides for the default network; the student alone is quick enough to be fitted more often.
    base, rounds = ("paper", 3) if feature_net else (None, 1)

    def one(seed):
        model = MAKERS["gdkl"](n_iter=6, random_state=seed, feature_net=feature_net, warp=None, base=base)
        return model.fit(X, y).predict(X)

    alone = [one(seed) for seed in range(4)]
    state = torch.get_rng_state()
    for _ in range(rounds):
        with ThreadPoolExecutor(4) as pool:
            for a, b in zip(alone, pool.map(one, range(4)), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9)
    assert torch.equal(torch.get_rng_state(), state)


@ALL
def test_fit_needs_no_gradients_to_be_switched_on(name):
    X, y = table(20)
    options = {"n_iter": 5} if "n_iter" in MAKERS[name]().get_params() else {}
    expected = MAKERS[name](**options).fit(X, y).predict(X)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            inside = MAKERS[name](**options).fit(X, y).predict(X)
        np.testing.assert_allclose(inside, expected, rtol=1e-9)


def test_a_numpy_generator_is_a_random_state():
    X, y = table(20)
    one, two = (MAKERS["gdkl"](random_state=np.random.default_rng(3)).fit(X, y).predict(X) for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_the_default_precision_of_torch_does_not_change_a_fit():
    X, y = table(20)
    options = {"base": "paper"}
    expected = MAKERS["gdkl"](**options).fit(X, y).predict(X)
    torch.set_default_dtype(torch.float64)
    try:
        # A kernel's start is rounded to the default precision; weights and splits are the same.
        np.testing.assert_allclose(MAKERS["gdkl"](**options).fit(X, y).predict(X), expected, rtol=1e-6)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_constant_column_is_ignored_with_a_warning():
    X, y = table(30)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"]).assign(c=4.0)
    with pytest.warns(DataWarning, match="Constant column ignored: c"):
        model = MAKERS["nngp"]().fit(frame, y)
    changed = frame.assign(c=9.0)
    np.testing.assert_array_equal(model.predict(frame), model.predict(changed))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = MAKERS["nngp"]().fit(frame[["a", "b", "d"]], y)
    np.testing.assert_allclose(model.predict(frame), alone.predict(frame[["a", "b", "d"]]))


def test_numbers_kept_as_objects_and_lists_are_welcome():
    X, y = table(30)
    expected = MAKERS["nngp"]().fit(X, y).predict(X)
    np.testing.assert_allclose(MAKERS["nngp"]().fit(X.astype(object), y.tolist()).predict(X.tolist()), expected)
    frame = pd.DataFrame(X, columns=list("abcd")).astype(object)
    np.testing.assert_allclose(MAKERS["nngp"]().fit(frame, pd.Series(y)).predict(frame), expected)


def test_the_network_never_sees_the_training_rows_again():
    seen = []

    class Counting(Wide):
        def forward(self, x):
            seen.append(len(x))
            return super().forward(x)

    X, y = table(40)
    model = MAKERS["gdkl"](feature_net=Counting).fit(X, y)
    seen.clear()
    model.predict(X[:3], return_std=True)
    assert seen == [3]
