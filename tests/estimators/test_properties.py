"""What holds for any table: of orders, units and parts of the rows, of variances, intervals, probabilities and files.

Of the estimators whose fits are deterministic and take milliseconds: what they share with all others is the same code.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gdkl
from gdkl import GPRegressor, NNGPClassifier, NNGPRegressor
from gdkl.inputs import LogWarp, YeoJohnson
from gdkl.predictive import Predictive

#: Each example is one or two fits: a fifth of the usual number.
few = settings(max_examples=max(1, settings().max_examples // 5), deadline=None)

REGRESSORS = {
    "nngp": NNGPRegressor,
    "relevant nngp": lambda: NNGPRegressor(relevance=True),
    "gp": GPRegressor,
}
#: Relative precision: rounding moves where searches for hyperparameters end.
PRECISION = {"nngp": 1e-6, "relevant nngp": 1e-2, "gp": 1e-3}

ALL = pytest.mark.parametrize("name", REGRESSORS)

pytestmark = pytest.mark.filterwarnings("ignore::gdkl.numerics.NumericsWarning")


@st.composite
def tables(draw, outputs=(1, 2)):
    """Rows, targets and new rows, and a generator for what is done to them."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d, count = draw(st.integers(8, 30)), draw(st.integers(1, 4)), draw(st.sampled_from(outputs))
    X = random.normal(size=(n, d)) * 10.0 ** random.uniform(-3, 3, size=d)
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    y = (
        np.sin(z[:, :1])
        + z[:, -1:] * np.arange(1, count + 1)
        + draw(st.sampled_from([0.03, 0.3])) * random.normal(size=(n, count))
    )
    new = X[random.integers(0, n, size=9)] + 0.3 * X.std(axis=0) * random.normal(size=(9, d))
    return X, y[:, 0] if count == 1 else y, new, random


def assert_alike(one, other, precision):
    """Means to a part of the deviation, and deviations relative to themselves."""
    np.testing.assert_allclose((one.mean - other.mean) / other.std, 0, atol=10 * precision)
    np.testing.assert_allclose(one.std, other.std, rtol=10 * precision)


@ALL
@few
@given(data=tables())
def test_the_order_of_the_training_rows_does_not_matter(name, data):
    X, y, new, random = data
    order = random.permutation(len(X))
    one, other = (REGRESSORS[name]().fit(X[part], y[part]) for part in (slice(None), order))
    assert_alike(one.predict_distribution(new), other.predict_distribution(new), PRECISION[name])


@ALL
@few
@given(data=tables())
def test_the_order_and_units_of_the_columns_do_not_matter(name, data):
    X, y, new, random = data
    order, units = random.permutation(X.shape[1]), 10.0 ** random.uniform(-9, 9, size=X.shape[1])
    shift = X.std(axis=0) * random.normal(size=X.shape[1])

    def changed(rows):
        return ((rows + shift) * units)[:, order]

    one, other = REGRESSORS[name]().fit(X, y), REGRESSORS[name]().fit(changed(X), y)
    assert_alike(one.predict_distribution(new), other.predict_distribution(changed(new)), PRECISION[name])
    if name == "relevant nngp":
        np.testing.assert_allclose(one.relevance_[order], other.relevance_, rtol=0.2)


@ALL
@few
@given(data=tables(), sign=st.sampled_from([-1, 1]), power=st.integers(-40, 40))
def test_predictions_are_in_the_units_of_the_target(name, data, sign, power):
    """A power of two rounds nothing."""
    X, y, new, _ = data
    factor = sign * 2.0**power
    one, other = (REGRESSORS[name]().fit(X, some).predict_distribution(new) for some in (y, factor * y))
    np.testing.assert_allclose(other.mean / factor, one.mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(other.std / abs(factor), one.std, rtol=1e-9)


@few
@given(data=tables(), factor=st.floats(1e-9, 1e9), shift=st.floats(-9, 9))
def test_a_shift_of_the_target_shifts_predictions(data, factor, shift):
    X, y, new, _ = data
    one, other = (NNGPRegressor().fit(X, some).predict_distribution(new) for some in (y, factor * (y + shift)))
    np.testing.assert_allclose((other.mean / factor - shift - one.mean) / one.std, 0, atol=1e-5)
    np.testing.assert_allclose(other.std / factor, one.std, rtol=1e-5)


@ALL
@few
@given(data=tables())
def test_of_a_fitted_model(name, data, tmp_path_factory):
    X, y, new, random = data
    model = REGRESSORS[name]().fit(X, y)
    p = model.predict_distribution(new)

    # The variance has the noise in it, which has a floor.
    assert (p.variance >= model.noise_ * (1 - 1e-9)).all()
    assert (p.latent_variance >= 0).all()
    assert (np.asarray(model.noise_) >= 0.99e-4 * y.var(axis=0)).all()

    # Predictions of a row depend neither on those beside it nor on its place.
    order, cut = random.permutation(len(new)), int(random.integers(1, len(new)))
    turned = model.predict_distribution(new[order])
    parts = [model.predict_distribution(part) for part in (new[:cut], new[cut:])]
    for quantity in ("mean", "variance", "latent_variance"):
        value = getattr(p, quantity)
        atol = 1e-9 * np.abs(value).max()
        np.testing.assert_allclose(getattr(turned, quantity), value[order], rtol=1e-9, atol=atol)
        joined = np.concatenate([getattr(part, quantity) for part in parts])
        np.testing.assert_allclose(joined, value, rtol=1e-9, atol=atol)

    # Quantiles increase, intervals nest, and the distribution function undoes quantiles.
    levels = np.sort(random.uniform(1e-3, 1 - 1e-3, size=5))
    quantiles = p.quantile(levels)
    assert (np.diff(quantiles, axis=0) >= 0).all()
    for level, row in zip(levels, quantiles, strict=True):
        np.testing.assert_allclose(p.cdf(row), level, rtol=1e-7)
    (inner_low, inner_high), (low, high) = p.interval(levels[0]), p.interval(levels[-1])
    assert (low <= inner_low).all()
    assert (inner_high <= high).all()

    # A file holds the very model.
    path = tmp_path_factory.mktemp("model") / "model.gdkl"
    model.save(path)
    again = gdkl.load(path).predict_distribution(new)
    for quantity in ("mean", "variance", "latent_variance"):
        np.testing.assert_array_equal(getattr(again, quantity), getattr(p, quantity))


@few
@given(data=tables(outputs=(1,)), classes=st.integers(2, 4))
def test_of_a_fitted_classifier(data, classes, tmp_path_factory):
    X, y, new, random = data
    labels = np.searchsorted(np.quantile(y, np.arange(1, classes) / classes), y)
    model = NNGPClassifier(random_state=0).fit(X, labels)
    p = model.predict_distribution(new)
    assert p.probs.shape == (len(new), classes)
    assert p.probs.min() >= 0
    np.testing.assert_allclose(p.probs.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(p.mode, model.classes_[p.probs.argmax(axis=1)])
    order, cut = random.permutation(len(new)), int(random.integers(1, len(new)))
    np.testing.assert_allclose(model.predict_proba(new[order]), p.probs[order], atol=1e-10)
    joined = np.concatenate([model.predict_proba(part) for part in (new[:cut], new[cut:])])
    np.testing.assert_allclose(joined, p.probs, atol=1e-10)
    # Names of classes that sort alike change nothing.
    named = NNGPClassifier(random_state=0).fit(X, np.array(list("abcd"))[labels])
    np.testing.assert_array_equal(named.predict_proba(new), p.probs)
    path = tmp_path_factory.mktemp("model") / "model.gdkl"
    model.save(path)
    np.testing.assert_array_equal(gdkl.load(path).predict_proba(new), p.probs)


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 4),
    warp=st.sampled_from([None, LogWarp(), YeoJohnson(1.0, 2.0, 0.3), YeoJohnson(-1.0, 0.5, 1.8)]),
)
def test_a_mixture_is_what_its_samples_are(seed, count, warp):
    random = np.random.default_rng(seed)
    variances = random.uniform(0.01, 1, size=(count, 3))
    weights = random.dirichlet(np.ones(count))
    p = Predictive(random.normal(size=(count, 3)), variances, variances / 2, weights=weights, warps=[warp])
    draws = p.sample(4000, random_state=seed)
    # Of the values of the distribution function at draws, which are uniform: mean ½ and variance 1/12, within six
    # standard errors.
    levels = np.stack([p.cdf(draw) for draw in draws])
    np.testing.assert_allclose(levels.mean(axis=0), 0.5, atol=6 * np.sqrt(1 / 12 / 4000))
    np.testing.assert_allclose(levels.var(axis=0), 1 / 12, atol=6 * np.sqrt(1 / 180 / 4000))
    inside = (p.quantile(0.2) <= draws) & (draws <= p.quantile(0.9))
    np.testing.assert_allclose(inside.mean(axis=0), 0.7, atol=6 * np.sqrt(0.21 / 4000))
