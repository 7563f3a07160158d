"""Weighted mixtures and warped predictions against closed forms of the log-normal, SciPy and samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from gdkl import GdklError, Predictive
from gdkl.inputs import LogWarp, YeoJohnson
from gdkl.inputs.function_warp import FunctionWarp

STD = np.array([0.05, 0.5, 1.0, 1.5])
MEAN = np.array([0.3, -1.0, 0.0, 2.0])
NORMAL = stats.lognorm(s=STD, scale=np.exp(MEAN))
RNG = np.random.default_rng(0)
MEANS, VARIANCES = RNG.normal(size=(3, 5)), RNG.uniform(0.05, 1.0, (3, 5))
WEIGHTS = np.array([0.2, 0.7, 0.1])
OWN = FunctionWarp.fit(np.arcsinh, np.sinh, np.linspace(-1.0, 5.0, 50))
WARPS = [None, LogWarp(), YeoJohnson(0.5, 2.0, 0.0), YeoJohnson(0.5, 2.0, 1.6), OWN]


def log_normal():
    return Predictive([MEAN], [STD**2], [STD**2 / 2], warps=[LogWarp()])


def mixture(warp=None, weights=WEIGHTS):
    return Predictive(MEANS, VARIANCES, VARIANCES / 2, weights=weights, warps=[warp])


def test_one_gaussian_under_a_logarithm_is_the_log_normal():
    p, y = log_normal(), np.array([1.4, 0.2, 3.0, 0.5])
    np.testing.assert_allclose(p.mean, NORMAL.mean(), rtol=1e-12)
    np.testing.assert_allclose(p.variance, NORMAL.var(), rtol=1e-9)
    np.testing.assert_allclose(p.std, NORMAL.std(), rtol=1e-9)
    np.testing.assert_allclose(p.latent_variance, stats.lognorm(STD / np.sqrt(2), scale=np.exp(MEAN)).var(), rtol=1e-9)
    np.testing.assert_allclose(p.log_prob(y), NORMAL.logpdf(y))
    np.testing.assert_allclose(p.cdf(y), NORMAL.cdf(y))
    np.testing.assert_allclose(p.quantile([0.1, 0.8]), [NORMAL.ppf(0.1), NORMAL.ppf(0.8)])
    np.testing.assert_allclose(p.interval(0.95), NORMAL.interval(0.95))
    draws = p.sample(50_000, random_state=0)
    for k in range(4):
        assert stats.kstest(draws[:, k], "lognorm", (STD[k], 0, np.exp(MEAN[k]))).pvalue > 1e-3


@pytest.mark.parametrize("y", [-2.0, 0.0, 1e-9, 0.3, 1.0, 4.0, 1e4])
def test_crps_of_the_log_normal_is_its_closed_form(y):
    # Baran and Lerch (2015), with F of the standard normal; below 0 only the distance of y grows.
    positive = max(y, 0.0)
    with np.errstate(divide="ignore"):
        z = (np.log(positive) - MEAN) / STD
    F, tail = stats.norm.cdf, stats.norm.cdf(STD / np.sqrt(2)) - 1
    closed = positive * (2 * F(z) - 1) - 2 * NORMAL.mean() * (F(z - STD) + tail) + (positive - y)
    np.testing.assert_allclose(log_normal().crps(np.full(4, y)), closed, rtol=1e-6)


def test_a_target_that_cannot_be_has_no_density():
    p = log_normal()
    assert (p.log_prob(-1.0) == -np.inf).all()
    assert (p.log_prob(0.0) == -np.inf).all()
    np.testing.assert_array_equal(p.cdf(-1.0), 0)


@pytest.mark.parametrize("warp", WARPS)
def test_everything_agrees_with_samples(warp):
    p, n, rng = mixture(warp), 200_000, np.random.default_rng(1)
    # Drawn by hand: a component, a Gaussian, the inverse.
    component = rng.choice(3, size=(n, 5), p=WEIGHTS)
    columns = np.arange(5)
    latent = MEANS[component, columns] + np.sqrt(VARIANCES[component, columns] / 2) * rng.standard_normal((n, 5))
    noisy = latent + np.sqrt(VARIANCES[component, columns] / 2) * rng.standard_normal((n, 5))
    draws, function = (noisy, latent) if warp is None else (warp.inverse(noisy), warp.inverse(latent))
    error = draws.std(axis=0) / np.sqrt(n)
    assert (np.abs(p.mean - draws.mean(axis=0)) < 5 * error).all()
    for variance, sampled in ((p.variance, draws), (p.latent_variance, function)):
        squares = (sampled - sampled.mean(axis=0)) ** 2
        assert (np.abs(variance - squares.mean(axis=0)) < 5 * squares.std(axis=0) / np.sqrt(n)).all()
    y = np.quantile(draws, [0.03, 0.4, 0.9], axis=0)
    for row, level in zip(y, (0.03, 0.4, 0.9), strict=True):
        np.testing.assert_allclose(p.cdf(row), level, atol=5 * np.sqrt(level * (1 - level) / n))
        # E|Y − y| − ½·E|Y − Y'|, with the other half of the draws for Y'.
        sampled = np.abs(draws - row).mean(axis=0) - 0.5 * np.abs(draws[: n // 2] - draws[n // 2 :]).mean(axis=0)
        np.testing.assert_allclose(p.crps(row), sampled, atol=8 * error.max())
    own = p.sample(n, random_state=1)
    assert all(stats.ks_2samp(own[:, k], draws[:, k]).pvalue > 1e-4 for k in range(5))


@pytest.mark.parametrize("warp", WARPS)
def test_the_density_is_the_derivative_of_the_cdf(warp):
    p = mixture(warp)
    y = p.quantile([0.2, 0.6, 0.95])
    for row in y:
        h = 1e-5 * np.abs(row)
        slope = (p.cdf(row + h) - p.cdf(row - h)) / (2 * h)
        np.testing.assert_allclose(p.log_prob(row), np.log(slope), atol=1e-5)


@pytest.mark.parametrize("warp", WARPS[2:4])
def test_moments_and_crps_agree_with_adaptive_integration(warp):
    p = mixture(warp)
    y = p.quantile(0.3)
    for k in range(5):
        one, (low, high) = p[[k]], p.quantile([1e-13, 1 - 1e-13])[:, k]

        def integral(function, ends=(low, high)):
            return integrate.quad(function, *ends, limit=500)[0]

        def density(t, one=one):
            return np.exp(one.log_prob([t])[0])

        def cdf(t, one=one):
            return one.cdf([t])[0]

        first, second = integral(lambda t: t * density(t)), integral(lambda t: t**2 * density(t))
        assert p.mean[k] == pytest.approx(first, abs=1e-4 * p.std[k])
        assert p.variance[k] == pytest.approx(second - first**2, rel=1e-3)
        squared = integral(lambda t: cdf(t) ** 2, (low, y[k])) + integral(lambda t: (1 - cdf(t)) ** 2, (y[k], high))
        assert p.crps(y)[k] == pytest.approx(squared, rel=1e-4)


def test_numerical_crps_of_a_linear_warp_is_the_closed_form():
    linear = YeoJohnson(0.0, 1.0, 1.0)
    means, variances = np.stack([MEANS[0], MEANS[0] + 0.01]), np.stack([1e-6 * VARIANCES[0], VARIANCES[0]])
    for y in (np.full(5, -40.0), np.full(5, -1.0), MEANS[0], MEANS[0] + 1e-3, np.full(5, 40.0)):
        np.testing.assert_allclose(mixture(linear).crps(y), mixture().crps(y), rtol=1e-6)
        plain, warped = (Predictive(means, variances, variances, warps=[warp]) for warp in (None, linear))
        np.testing.assert_allclose(warped.crps(y), plain.crps(y), rtol=1e-6)


def test_crps_of_many_rows_is_that_of_each():
    rows = np.arange(4500) % 5
    p, y = mixture(LogWarp()), np.exp(MEANS[0])
    np.testing.assert_allclose(p[rows].crps(y[rows]), p.crps(y)[rows], rtol=1e-12)
    assert p[:0].crps(y[:0]).shape == (0,)


@given(levels=st.lists(st.floats(1e-4, 1 - 1e-4), min_size=2, max_size=4), choice=st.integers(0, len(WARPS) - 1))
def test_quantiles_increase_undo_the_cdf_and_nest(levels, choice):
    p = mixture(WARPS[choice])
    levels = np.sort(levels)
    found = p.quantile(levels)
    assert (np.diff(found, axis=0) >= -1e-12 * np.abs(found[1:])).all()
    for row, level in zip(found, levels, strict=True):
        np.testing.assert_allclose(p.cdf(row), level, rtol=1e-9)
    (inner_low, inner_high), (low, high) = p.interval(levels[0]), p.interval(levels[-1])
    assert (low <= inner_low + 1e-12).all()
    assert (inner_high <= high + 1e-12).all()


@given(mean=st.floats(-1e3, 1e3), std=st.floats(1e-3, 1e3), level=st.floats(1e-6, 1 - 1e-6))
def test_intervals_under_a_logarithm_are_positive_and_all_is_finite(mean, std, level):
    for warp in (LogWarp(), YeoJohnson(1.0, 2.0, 0.0), YeoJohnson(1.0, 2.0, 2.0)):
        p = Predictive([[mean], [0.0]], [[std**2], [1.0]], [[0.0], [0.0]], warps=[warp])
        low, high = p.interval(level)
        for value in (low, high, p.mean, p.variance, p.latent_variance, p.crps([1.0]), p.sample(3, random_state=0)):
            assert np.isfinite(value).all()
        assert (low <= high).all()
        if warp == LogWarp():
            assert (low > 0).all()


@pytest.mark.parametrize("warp", WARPS)
def test_all_weight_on_one_component_is_that_component(warp):
    p = mixture(warp, [0.0, 1.0, 0.0])
    alone = Predictive(*(part[1:2] for part in (MEANS, VARIANCES, VARIANCES / 2)), warps=[warp])
    y = alone.quantile(0.7)
    for name in ("mean", "variance", "latent_variance", "std"):
        np.testing.assert_allclose(getattr(p, name), getattr(alone, name), rtol=1e-12)
    for name, argument in (("log_prob", y), ("cdf", y), ("crps", y), ("quantile", 0.2)):
        np.testing.assert_allclose(getattr(p, name)(argument), getattr(alone, name)(argument), rtol=1e-5)
    np.testing.assert_allclose(p.sample(50, random_state=0), alone.sample(50, random_state=0))


def test_equal_weights_are_the_default_and_order_does_not_matter():
    y = np.zeros(5)
    np.testing.assert_allclose(mixture(weights=None).log_prob(y), mixture(weights=np.full(3, 1 / 3)).log_prob(y))
    turned = Predictive(MEANS[::-1], VARIANCES[::-1], VARIANCES[::-1], weights=WEIGHTS[::-1])
    np.testing.assert_allclose(turned.crps(y), mixture().crps(y))


@given(st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3))
def test_weights_sum_to_one(parts):
    p = mixture(weights=np.array(parts) / np.sum(parts))
    assert p.weights.sum() == pytest.approx(1, abs=1e-15)
    np.testing.assert_allclose(p.cdf(1e9), 1)


def test_outputs_have_their_own_weights_and_warps():
    rng = np.random.default_rng(2)
    means, variances = rng.normal(size=(2, 6, 3)), rng.uniform(0.1, 1, (2, 6, 3))
    weights = np.array([[0.2, 0.5, 1.0], [0.8, 0.5, 0.0]])
    warps = [None, LogWarp(), YeoJohnson(0.0, 1.0, 0.5)]
    p = Predictive(means, variances, variances / 2, weights=weights, warps=warps)
    y = np.exp(rng.normal(size=(6, 3)))
    for k in range(3):
        one = p.output(k)
        assert one.warps == (warps[k],)
        np.testing.assert_array_equal(one.weights, weights[:, k])
        for name in ("mean", "variance", "latent_variance"):
            np.testing.assert_allclose(getattr(p, name)[:, k], getattr(one, name), rtol=1e-9)
        for name in ("log_prob", "cdf", "crps"):
            np.testing.assert_allclose(getattr(p, name)(y)[:, k], getattr(one, name)(y[:, k]), rtol=1e-6)
        np.testing.assert_allclose(p.quantile([0.1, 0.6])[..., k], one.quantile([0.1, 0.6]))
        draws = p.sample(100_000, random_state=k)[..., k]
        assert (np.abs(draws.mean(axis=0) - one.mean) < 5 * draws.std(axis=0) / np.sqrt(1e5)).all()
    picked = p[[4, 1]]
    np.testing.assert_array_equal(picked.mean, p.mean[[4, 1]])
    np.testing.assert_array_equal(picked.log_prob(y[[4, 1]]), p.log_prob(y)[[4, 1]])
    assert repr(p) == "Predictive(warped mixture of 2 Gaussians at 6 points, shape (6, 3))"
    assert repr(log_normal()) == "Predictive(warped Gaussian at 4 points, shape (4,))"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": [0.5, 0.5]}, r"give \(3,\) or \(3, 1\)"),
        ({"weights": [0.5, 0.6, 0.1]}, "sum to 1"),
        ({"weights": [-0.5, 1.0, 0.5]}, "0 or more"),
        ({"weights": [np.nan, 1.0, 0.5]}, "sum to 1"),
        ({"warps": [None, None]}, "2 warps do not fit 1 outputs"),
    ],
)
def test_weights_and_warps_that_do_not_fit_are_refused(options, message):
    with pytest.raises(GdklError, match=message):
        Predictive(MEANS, VARIANCES, VARIANCES, **options)
