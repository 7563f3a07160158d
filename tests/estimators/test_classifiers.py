"""What users of the classifiers rely on: probabilities, labels of any kind, repeatability, images, options."""

from __future__ import annotations

import os
import pickle
import signal
import warnings

import gpytorch
import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from classifier_cases import MAKERS, images, table
from preset_options import with_preset
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from torch import nn

import gdkl
from gdkl import GDKLClassifier, NNClassifier, NNGPClassifier, infinite, metrics
from gdkl.estimators import classifiers
from gdkl.estimators.regimes import Regime, defaults
from gdkl.gp import base_samples
from gdkl.methods import fit_gdkl_classes
from gdkl.numerics import DataWarning, InterruptedFitWarning
from gdkl.training import KeepOnInterrupt

ALL = pytest.mark.parametrize("name", MAKERS)
PROCESSES = pytest.mark.parametrize("name", ["gdkl", "dkl", "nngp"])


def _alone(name):
    """Options without a guide in the predictions."""
    return {"guide_share": 0, "likelihood": "dirichlet"} if name == "gdkl" else {}


@ALL
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_probabilities_and_learn_something(name, classes):
    X, y = table(80, classes)
    model = MAKERS[name]().fit(X[:60], y[:60])
    probs = model.predict_proba(X[60:])
    assert probs.shape == (20, classes)
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-12)
    assert probs.min() >= 0
    assert model.score(X[60:], y[60:]) > 0.8
    np.testing.assert_array_equal(model.predict(X), model.classes_[model.predict_proba(X).argmax(axis=1)])
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X), atol=1e-12)


@ALL
def test_a_rows_probabilities_do_not_depend_on_its_batch(name):
    X, y = table(80)
    model = MAKERS[name]().fit(X[:60], y[:60])
    whole = model.predict_proba(X)
    parts = np.concatenate([model.predict_proba(X[part]) for part in (slice(0, 1), slice(1, 30), slice(30, 80))])
    np.testing.assert_allclose(parts, whole, rtol=0, atol=1e-10)


@PROCESSES
def test_probabilities_follow_from_the_latents_by_the_samples(name):
    X, y = table(60)
    model = MAKERS[name](**_alone(name)).fit(X[:45], y[:45])
    p = model.predict_distribution(X[45:])
    base = base_samples(1024, 3, model.sampling_seed_).numpy()
    f = p.latent_mean[None] + np.sqrt(p.latent_variance)[None] * base[:, None, :]
    log_probs = np.log(np.exp(log_softmax(f, axis=-1)).mean(axis=0))
    expected = np.exp(log_softmax(log_probs / model.temperature_, axis=-1))
    np.testing.assert_allclose(p.probs, expected, rtol=1e-9)


def test_an_nngp_is_the_dense_computation():
    """Dirichlet targets, one GP a class, softmax of samples: by NumPy's inverse, from the kernel alone."""
    X, y = table(40)
    guide = infinite.mlp(2)
    model = NNGPClassifier(guide=guide, random_state=0).fit(X[:30], y[:30])
    scaled = (X - X[:30].mean(0)) / X[:30].std(0)
    K = guide.kernel(scaled)
    scale = float(model.model_.posterior.kernel.scale[0, 0])
    noise = float(model.model_.noise[0, 0])
    share = model.guide_report_.label_noise_factor[0]
    mean, variance = np.zeros((10, 3)), np.zeros((10, 3))
    for c in range(3):
        alpha = 0.01 + (y[:30] == c)
        own = np.log(1 / alpha + 1)
        inverse = np.linalg.inv(scale * K[:30, :30] + np.diag(share * own + noise))
        cross = scale * K[30:, :30]
        mean[:, c] = cross @ inverse @ (np.log(alpha) - own / 2)
        variance[:, c] = scale * np.diag(K)[30:] - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    p = model.predict_distribution(X[30:])
    np.testing.assert_allclose(p.latent_mean, mean, atol=1e-7)
    np.testing.assert_allclose(p.latent_variance, variance, atol=1e-7)
    f = mean + np.sqrt(variance) * base_samples(1024, 3, model.sampling_seed_).numpy()[:, None, :]
    np.testing.assert_allclose(p.probs, np.exp(log_softmax(f, axis=-1)).mean(axis=0), atol=1e-8)


@ALL
def test_any_kind_of_label(name):
    X, y = table(40, classes=2)
    expected = MAKERS[name]().fit(X, y).predict_proba(X)
    for names in (["no", "yes"], [False, True], [-1, 7], [0.0, 2.0]):
        labels = np.array(names)[y]
        model = MAKERS[name]().fit(X, labels)
        assert model.classes_.tolist() == names
        assert set(model.predict(X).tolist()) <= set(names)
        np.testing.assert_array_equal(model.predict_proba(X), expected)
        assert model.predict_distribution(X).log_prob(labels).shape == (40,)


def test_labels_may_be_objects_series_and_tensors():
    X, y = table(30)
    expected = MAKERS["nngp"]().fit(X, y).predict_proba(X)
    for labels in (y.astype(object), pd.Series(y), y.tolist(), torch.as_tensor(y)):
        np.testing.assert_array_equal(MAKERS["nngp"]().fit(X, labels).predict_proba(X), expected)
    np.testing.assert_array_equal(MAKERS["nngp"]().fit(torch.as_tensor(X), y).predict_proba(X), expected)


@ALL
def test_two_fits_with_one_seed_are_equal_and_leave_the_global_generators_alone(name):
    X, y = table(40)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = (MAKERS[name](random_state=3).fit(X, y).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


@ALL
def test_estimators_survive_clone_pickle_and_joblib(name, tmp_path):
    X, y = table(30)
    model = MAKERS[name]().fit(X, y)
    expected = model.predict_proba(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), expected)
    joblib.dump(model, tmp_path / "model.joblib")
    np.testing.assert_array_equal(joblib.load(tmp_path / "model.joblib").predict_proba(X), expected)
    np.testing.assert_array_equal(clone(model).fit(X, y).predict_proba(X), expected)


def test_cross_validation_works():
    X, y = table(60)
    assert cross_val_score(MAKERS["gdkl"](), X, y, cv=3, scoring="neg_log_loss").mean() > -0.6


def test_history_has_the_objectives_terms():
    X, y = table(30)
    history = MAKERS["gdkl"]().fit(X, y).history_
    assert list(history.columns) == ["step", "objective", "ell", "kl", "noise", "learning_rate"]
    np.testing.assert_allclose(history.objective, history.ell + history.kl)
    assert {"data_fit", "complexity"} <= set(MAKERS["dkl"]().fit(X, y).history_.columns)
    assert {"nll"} <= set(MAKERS["nn"]().fit(X, y).history_.columns)
    assert MAKERS["gdkl"](n_iter=7).fit(X, y).n_iter_ == 7


def test_beta_weighs_the_guide():
    """A heavier guide is followed more closely: the same guide, the same steps, a smaller distance to it."""
    X, y = table(60)
    alone = _alone("gdkl")
    distances = [
        MAKERS["gdkl"](beta=beta, n_iter=100, **alone).fit(X, y).history_.kl[-50:].mean() for beta in (0.0, 30.0)
    ]
    assert distances[0] > 1.3 * distances[1]


@PROCESSES
def test_classification_as_regression(name):
    X, y = table(80)
    model = MAKERS[name](**_alone(name) | {"likelihood": "gaussian", "calibrate": False}).fit(X[:60], y[:60])
    p = model.predict_distribution(X[60:])
    assert (p.mode == y[60:]).mean() > 0.8
    noise = model.model_.noise[0].numpy()
    expected = np.exp(log_softmax(2 * p.latent_mean / (p.latent_variance + noise), axis=1))
    np.testing.assert_allclose(p.probs, expected, rtol=1e-9)


@ALL
def test_a_temperature_changes_confidence_and_no_label(name):
    X, y = table(90, classes=3, seed=3)
    rng = np.random.default_rng(0)
    wrong = rng.choice(90, 25, replace=False)
    y[wrong] = rng.integers(0, 3, 25)
    options = {"likelihood": "dirichlet"} if name == "gdkl" else {}
    plain, warm = (MAKERS[name](calibrate=c, **options).fit(X[:60], y[:60]) for c in (False, True))
    assert plain.temperature_ == 1.0
    if name == "dlvkl":
        # With inducing points fewer than a thousand rows spare none for a temperature.
        assert warm.temperature_ == 1.0
        return
    assert warm.temperature_ != 1.0
    np.testing.assert_array_equal(plain.predict(X), warm.predict(X))
    expected = log_softmax(plain.predict_log_proba(X) / warm.temperature_, axis=1)
    np.testing.assert_allclose(warm.predict_log_proba(X), expected, atol=1e-9)


def test_one_student_takes_the_temperature_of_its_guide():
    X, y = table(60, classes=3, seed=3)
    student, guide = (MAKERS[name](calibrate=True, likelihood="dirichlet").fit(X, y) for name in ("gdkl", "nngp"))
    assert student.temperature_ == guide.temperature_
    # Separable classes: the guide is less sure than it could be.
    assert guide.temperature_ < 1


def test_more_rows_than_a_step_takes():
    X, y = table(120, classes=3, seed=1)
    few, enough, everything = (
        MAKERS["gdkl"](batch_size=size, **_alone("gdkl")).fit(X[:90], y[:90]) for size in (30, 90, 0)
    )
    assert few.score(X[90:], y[90:]) > 0.8
    assert not np.allclose(few.predict_proba(X), everything.predict_proba(X), atol=1e-3)
    np.testing.assert_array_equal(enough.predict_proba(X), everything.predict_proba(X))


def test_recombined_rows_are_for_tables_unless_asked_for():
    X, y = table(40)
    alone = _alone("gdkl")
    default, with_them, without = (MAKERS["gdkl"](augment=a, **alone).fit(X, y) for a in ("auto", True, False))
    np.testing.assert_array_equal(default.predict_proba(X), with_them.predict_proba(X))
    assert not np.allclose(default.predict_proba(X), without.predict_proba(X), atol=1e-3)


def test_a_few_rows_that_are_all_right_do_not_make_certain():
    rng = np.random.default_rng(0)
    y = np.arange(30) % 2
    X = rng.normal(size=(30, 2)) + 8 * y[:, None]
    model = MAKERS["nn"](calibrate=True).fit(X, y)
    assert model.score(X, y) == 1
    # Six held-out rows, all right, would say zero.
    assert 0.2 < model.temperature_ < 1


def test_a_temperature_mends_an_overconfident_network():
    X, y = table(240, classes=3, seed=3)
    rng = np.random.default_rng(0)
    wrong = rng.choice(240, 80, replace=False)
    y[wrong] = rng.integers(0, 3, 80)
    plain, warm = (MAKERS["nn"](calibrate=c, n_iter=200).fit(X[:160], y[:160]) for c in (False, True))
    assert warm.temperature_ > 1.5
    before, after = (model.predict_proba(X[160:]) for model in (plain, warm))
    assert metrics.nll(after, y[160:]) < metrics.nll(before, y[160:]) - 0.1
    assert metrics.ece(after, y[160:]) < metrics.ece(before, y[160:])
    assert metrics.accuracy(after, y[160:]) == metrics.accuracy(before, y[160:])


def test_a_class_with_one_row_is_allowed():
    X, y = table(40)
    y[y == 2] = 0
    y[7] = 2
    for name, make in MAKERS.items():
        model = make(calibrate=True).fit(X, y)
        assert model.predict_proba(X).shape == (40, 3), name


def test_labels_never_seen_count_as_wrong_in_a_score_and_have_no_probability():
    X, y = table(40)
    model = MAKERS["nngp"]().fit(X[:30], y[:30])
    right = model.score(X[30:], y[30:])
    strange = y[30:].copy()
    strange[:5] = 9
    assert model.score(X[30:], strange) <= right - 0.4
    with pytest.raises(gdkl.GdklError, match="not there in fit: 9"):
        model.predict_distribution(X[30:]).log_prob(strange)


def test_uncertainty_grows_away_from_the_data():
    X, y = table(60)
    model = MAKERS["nngp"]().fit(X, y)
    near, far = model.predict_distribution(X), model.predict_distribution(X + 1000 * X.std(0))
    assert np.median(far.latent_variance) > 10 * np.median(near.latent_variance)


@ALL
def test_an_ensemble_is_the_mean_of_its_members(name):
    if name == "nngp":
        pytest.skip("an NNGP has nothing random to make members of")
    X, y = table(50)
    model = MAKERS[name](n_members=3, calibrate=False, **_alone(name)).fit(X[:40], y[:40])
    [rows] = model._scaled_views(X[40:])
    latents = model.model_.marginals(rows)
    # Of DLVKL each of three networks has sixteen codes per row.
    assert latents.mean.shape == (48 if name == "dlvkl" else 3, 3, 10)
    assert float(latents.mean.std(dim=0).min()) > 0
    members = model._member_log_probs(model.model_, rows, model.sampling_seed_)[0].exp()
    np.testing.assert_allclose(model.predict_proba(X[40:]), members.mean(dim=0).T, atol=1e-12)


def test_the_search_for_a_guide_is_reported():
    X, y = table(60)
    model = MAKERS["gdkl"](guide="auto").fit(X, y)
    report = model.guide_report_
    assert list(report.columns) == [
        "guide",
        "held_out_log_likelihood",
        "held_out_accuracy",
        "scale",
        "label_noise_factor",
        "chosen",
    ]
    assert len(report) > 4
    assert report.held_out_log_likelihood.is_monotonic_decreasing
    assert report.chosen.tolist() == [True] + [False] * (len(report) - 1)
    assert isinstance(model.guide_, infinite.InfiniteNetwork)
    single = MAKERS["nngp"]().fit(X, y).guide_report_
    assert len(single) == 1


def test_a_given_scale_is_used():
    X, y = table(40)
    small, large = (
        MAKERS["gdkl"](guide_scale=s, likelihood="dirichlet").fit(X, y).predict_proba(X) for s in (1.0, 1000.0)
    )
    assert np.abs(small - large).max() > 0.05


@pytest.mark.parametrize(
    "guide",
    [infinite.mlp(1, activation="erf"), gpytorch.kernels.RBFKernel(), lambda a, b: torch.exp(-torch.cdist(a, b))],
)
def test_any_guide(guide):
    X, y = table(40)
    assert MAKERS["gdkl"](guide=guide).fit(X, y).score(X, y) > 0.7
    assert MAKERS["nngp"](guide=guide).fit(X, y).score(X, y) > 0.7


@pytest.mark.parametrize("kernel", [gpytorch.kernels.MaternKernel(nu=2.5), gpytorch.kernels.RQKernel()])
def test_any_base_kernel(kernel):
    X, y = table(40)
    assert MAKERS["gdkl"](base_kernel=kernel, n_iter=60).fit(X, y).score(X, y) > 0.7


def test_gradient_descent_with_momentum():
    X, y = table(60)
    model = MAKERS["nn"](optimizer="sgd", learning_rate=0.05, n_iter=100).fit(X, y)
    assert model.score(X, y) > 0.9
    still = MAKERS["nn"](optimizer="sgd", learning_rate=0.05, momentum=0.0, n_iter=100).fit(X, y)
    assert np.abs(model.predict_proba(X) - still.predict_proba(X)).max() > 1e-3
    assert MAKERS["gdkl"](optimizer="sgd").fit(X, y).score(X, y) > 0.5


def test_fit_needs_no_gradients_to_be_switched_on():
    X, y = table(20)
    expected = MAKERS["gdkl"](n_iter=5).fit(X, y).predict_proba(X)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            inside = MAKERS["gdkl"](n_iter=5).fit(X, y).predict_proba(X)
        np.testing.assert_allclose(inside, expected, rtol=1e-9)


def test_float32_is_allowed_and_close():
    X, y = table(40)
    low, high = (MAKERS["nngp"](dtype=dtype).fit(X, y).predict_proba(X) for dtype in ("float32", "float64"))
    np.testing.assert_allclose(low, high, atol=1e-3)


class Small(nn.Module):
    """Convolution, batch norm and dropout: all that behaves differently in training."""

    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.2), nn.AdaptiveAvgPool2d((1, 2))
        )

    def forward(self, x):
        assert x.ndim == 4
        return self.layers(x).flatten(1)


@ALL
def test_images(name):
    X, y = images()
    options = {} if name == "nngp" else {"feature_net": Small}
    with pytest.warns(DataWarning, match="Integer images are divided by 255"):
        model = MAKERS[name](**options).fit(X[:16], y[:16])
    assert model.image_shape_ == (2, 8, 8)
    assert model.n_features_in_ == 128
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        probs = model.predict_proba(X[16:])
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-12)
    # As floats from 0 to 1, and as tensors, they are the same images.
    floats = X[16:].astype(np.float32) / 255
    np.testing.assert_allclose(model.predict_proba(floats), probs, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(torch.as_tensor(X[16:])), probs, atol=1e-7)
    np.testing.assert_allclose(model.predict_proba(X[16:18]), probs[:2], atol=1e-4)


@pytest.mark.filterwarnings("ignore::gdkl.numerics.DataWarning")
def test_images_are_standardised_by_channel():
    """Another brightness and contrast of each channel is the same data."""
    X, y = images(30, shape=(2, 4, 4))
    one = X.astype(np.float64) / 255
    other = one * np.array([3.0, 0.2]).reshape(1, 2, 1, 1) - 1
    first, second = (NNGPClassifier(random_state=0).fit(x, y).predict_proba(x) for x in (one, other))
    np.testing.assert_allclose(first, second, atol=1e-4)
    guide = infinite.Sequential(
        infinite.Conv2d(3, padding="same", weight_var=2.0), infinite.ReLU(), infinite.Flatten(), infinite.Linear()
    )
    assert NNGPClassifier(guide=guide, random_state=0).fit(X, y).score(X, y) == 1.0
    assert NNGPClassifier(guide="auto", random_state=0).fit(X, y).score(X, y) == 1.0


@pytest.mark.filterwarnings("ignore::gdkl.numerics.DataWarning")
@pytest.mark.parametrize("feature_net", [[8, 3], Small(2), Small])
def test_any_network_over_images(feature_net):
    X, y = images()
    model = GDKLClassifier(feature_net=feature_net, n_iter=15, random_state=0).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()
    network = model.model_.embed
    assert not network.training
    assert next(network.parameters()).dtype == torch.float32
    assert model.model_.posterior.factor.dtype == torch.float64
    assert model.model_.posterior.features.dtype == torch.float64


@pytest.mark.filterwarnings("ignore::gdkl.numerics.DataWarning")
def test_the_default_network_for_images_is_a_wide_resnet():
    X, y = images(8, shape=(1, 8, 8))
    model = NNClassifier(n_iter=1, random_state=0).fit(X, y)
    network = model.model_.embed.template.network.network
    assert type(network) is gdkl.nets.WideResNet
    assert (network.depth, network.widen_factor) == (10, 2)
    many = defaults(Regime("gdkl", n_classes=2, images=True, exact=False, rows=50_000, cuda=True))
    assert (many["depth"], many["widen_factor"]) == (28, 5)


def places(n, seed=0):
    """Small bright shapes of two kinds at random places: nothing for a network that takes pixels where they are."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = 0.2 * rng.normal(size=(n, 1, 10, 10))
    for row, label in enumerate(y):
        down, along = rng.integers(0, 8, 2)
        X[row, 0, down : down + 3, along : along + 3] += [np.eye(3) + np.eye(3)[::-1], 1 - np.eye(3)][label]
    return X.astype(np.float32), y


class Places(nn.Module):
    """Convolutions that know shapes wherever they are."""

    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 12, 3),
            nn.ReLU(),
            nn.Conv2d(12, 12, 3),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
        )

    def forward(self, x):
        return self.layers(x)


@pytest.mark.long
def test_a_guide_that_holds_its_student_back_is_trusted_less():
    X, y = places(120)
    options = with_preset(feature_net=Places, n_iter=300, learning_rate=0.03, random_state=0)
    chosen, held_back = (GDKLClassifier(beta=beta, **options).fit(X, y) for beta in (None, 6.0))
    assert chosen.beta_ == pytest.approx(0.2)
    assert chosen.guide_share_ == 0
    assert (held_back.beta_, held_back.guide_share_) == (6.0, 0.25)
    Xt, yt = places(200, seed=1)
    assert metrics.nll(chosen.predict_proba(Xt), yt) < metrics.nll(held_back.predict_proba(Xt), yt) - 0.05


@pytest.mark.filterwarnings("ignore::gdkl.numerics.DataWarning")
@pytest.mark.parametrize(("n", "fits"), [(40, 1), (300, 3)])
def test_images_are_tried_on_a_held_out_fifth_where_that_can_tell(n, fits, monkeypatch):
    found = []

    def fit(data, *args, **options):
        found.append((data.n, options["beta"]))
        return fit_gdkl_classes(data, *args, **options)

    monkeypatch.setattr(classifiers, "fit_gdkl_classes", fit)
    X, y = images(n, shape=(1, 4, 4))
    model = GDKLClassifier(feature_net=[4, 2], n_iter=1, random_state=0).fit(X, y)
    usual = min(6.0, 1600 / n)  # they are moved at every step
    assert len(found) == fits
    assert found[-1] == (n, model.beta_)
    assert found[:-1] == [(240, usual), (240, pytest.approx(usual / 30))][: fits - 1]
    found.clear()
    assert GDKLClassifier(beta=0.5, feature_net=[4, 2], n_iter=1, random_state=0).fit(X, y).beta_ == 0.5
    assert found == [(n, 0.5)]


def test_the_weight_of_the_guide_is_told_of_and_kept(tmp_path):
    X, y = table(40)
    model = MAKERS["gdkl"](n_iter=2).fit(X, y)
    assert model.beta_ == 1
    model.save(tmp_path / "model.gdkl")
    assert gdkl.load(tmp_path / "model.gdkl").beta_ == 1
    sparse = MAKERS["gdkl"](n_iter=2, inference="sparse", n_inducing=5, batch_size=8).fit(X, y)
    assert sparse.beta_ == pytest.approx(0.001)
    pictures = GDKLClassifier(feature_net=Places, n_iter=2, inference="sparse", random_state=0).fit(*places(40))
    assert pictures.beta_ == pytest.approx(0.1)


@pytest.mark.usefixtures("ctrl_c")
def test_trials_that_the_user_interrupts_are_all_there_is():
    X, y = places(60)

    def stop(report):
        os.kill(os.getpid(), signal.SIGINT)

    model = GDKLClassifier(feature_net=Places, n_iter=30, random_state=0, callbacks=[stop])
    with pytest.raises(KeyboardInterrupt, match="some of the rows"):
        model.fit(X, y)
    assert model.n_iter_ == 1
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("calibrate", [True, False])
@pytest.mark.parametrize("steps", [3, 9])
def test_an_interrupt_in_either_trial_leaves_a_model(steps, calibrate):
    X, y = places(60)
    calls = []

    def stop(report):
        calls.append(report.step)
        if len(calls) == steps:
            os.kill(os.getpid(), signal.SIGINT)

    options = with_preset(feature_net=Places, n_iter=6, random_state=0, calibrate=calibrate)
    model = GDKLClassifier(**options, callbacks=[stop, KeepOnInterrupt()])
    with pytest.warns(InterruptedFitWarning, match="some of the rows"):
        model.fit(X, y)
    # The second trial, of a guide that counts less, is not worth half: the first stays.
    assert len(calls) == steps
    assert model.n_iter_ == min(steps, 6)
    assert model.beta_ == 6.0
    assert np.isfinite(model.predict_proba(X)).all()


def test_a_table_after_images_is_a_table():
    X, y = images()
    model = NNGPClassifier(random_state=0)
    with pytest.warns(DataWarning):
        model.fit(X, y)
    rows, labels = table(30)
    model.fit(rows, labels)
    assert model.image_shape_ is None
    assert model.n_features_in_ == 4
    assert model.predict_proba(rows).shape == (30, 3)


def test_a_constant_column_is_ignored_with_a_warning():
    X, y = table(30)
    X[:, 2] = 4
    with pytest.warns(DataWarning, match="Constant column ignored: 2"):
        model = MAKERS["nngp"]().fit(X, y)
    other = X.copy()
    other[:, 2] = 9
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(other))
