"""Predictive distributions against SciPy's normal and against samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gdkl import GdklError, Predictive

MEAN = np.array([0.0, 2.0, -1.0])
VARIANCE = np.array([1.0, 4.0, 0.25])
LATENT = VARIANCE / 2


def _gaussian():
    return Predictive.gaussian(MEAN, VARIANCE, LATENT)


def _mixture():
    return Predictive([MEAN, MEAN + 1.5], [VARIANCE, 2 * VARIANCE], [LATENT, LATENT])


def test_gaussian_agrees_with_scipy():
    p, normal = _gaussian(), stats.norm(MEAN, np.sqrt(VARIANCE))
    y = np.array([0.3, -1.0, -1.2])
    np.testing.assert_allclose(p.log_prob(y), normal.logpdf(y))
    np.testing.assert_allclose(p.cdf(y), normal.cdf(y))
    np.testing.assert_allclose(p.quantile(0.3), normal.ppf(0.3))
    np.testing.assert_allclose(p.quantile([0.1, 0.9]), [normal.ppf(0.1), normal.ppf(0.9)])
    np.testing.assert_allclose(p.interval(0.8), normal.interval(0.8))
    np.testing.assert_allclose(p.std, normal.std())
    np.testing.assert_array_equal(p.latent_variance, LATENT)
    assert len(p) == 3
    assert "Gaussian at 3 points" in repr(p)


@given(q=st.floats(0.001, 0.999))
def test_quantile_undoes_the_cdf(q):
    for p in (_gaussian(), _mixture()):
        np.testing.assert_allclose(p.cdf(p.quantile(q)), q, rtol=1e-9)


def test_mixture_moments_and_density():
    p = _mixture()
    y = np.array([0.3, -1.0, -1.2])
    one, two = stats.norm(MEAN, np.sqrt(VARIANCE)), stats.norm(MEAN + 1.5, np.sqrt(2 * VARIANCE))
    np.testing.assert_allclose(p.log_prob(y), np.log(0.5 * (one.pdf(y) + two.pdf(y))))
    np.testing.assert_allclose(p.mean, MEAN + 0.75)
    np.testing.assert_allclose(p.variance, 1.5 * VARIANCE + 0.75**2)
    np.testing.assert_allclose(p.latent_variance, LATENT + 0.75**2)
    draws = p.sample(200_000, random_state=0)
    np.testing.assert_allclose(draws.mean(0), p.mean, atol=0.02)
    np.testing.assert_allclose(draws.var(0), p.variance, rtol=0.02)


def test_samples_are_reproducible_and_have_the_right_shape():
    p = Predictive.gaussian(np.zeros((4, 2)), np.ones((4, 2)), np.ones((4, 2)))
    assert p.sample(3, random_state=1).shape == (3, 4, 2)
    np.testing.assert_array_equal(p.sample(3, random_state=1), p.sample(3, random_state=1))
    np.testing.assert_array_equal(
        p.sample(3, random_state=np.random.RandomState(5)), p.sample(3, random_state=np.random.RandomState(5))
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.quantile(0.0),
        lambda p: p.quantile([0.5, 1.0]),
        lambda p: p.interval(1.0),
        lambda p: p.sample(0),
        lambda p: p.sample(1.5),
        lambda p: p.quantile([]),
        lambda p: p.quantile("a"),
        lambda p: p.quantile([[0.1, 0.2]]),
        lambda p: p.interval([0.5, 0.9]),
        lambda p: p[1],
        lambda p: p.log_prob([1.0, 2.0]),
        lambda p: Predictive([0.0], [1.0], [1.0]),
        lambda p: Predictive([[0.0]], [[1.0, 2.0]], [[1.0]]),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(GdklError) as caught:
        call(_gaussian())
    assert isinstance(caught.value, ValueError)


def test_some_of_the_points():
    p = _mixture()
    for rows in (slice(1, 3), [0, 2], np.array([True, False, True])):
        np.testing.assert_array_equal(p[rows].mean, p.mean[rows])
        np.testing.assert_array_equal(p[rows].quantile(0.2), p.quantile(0.2)[rows])


def test_targets_of_one_column_fit_a_flat_prediction():
    np.testing.assert_array_equal(_gaussian().log_prob(MEAN[:, None]), _gaussian().log_prob(MEAN))


def test_one_of_several_targets():
    means = np.random.default_rng(0).normal(size=(2, 4, 3))
    p = Predictive(means, np.exp(means), np.exp(means) / 2)
    for k in (0, 2, -1):
        one = p.output(k)
        assert one.shape == (4,)
        np.testing.assert_array_equal(one.mean, p.mean[:, k])
        np.testing.assert_array_equal(one.latent_variance, p.latent_variance[:, k])
        np.testing.assert_allclose(one.quantile(0.2), p.quantile(0.2)[:, k])
    np.testing.assert_array_equal(_mixture().output(0).variance, _mixture().variance)
    for wrong in (3, -4, 1.0, True):
        with pytest.raises(GdklError, match=r"not there: the targets have the numbers 0 to 2"):
            p.output(wrong)
    with pytest.raises(GdklError, match="0 to 0"):
        _gaussian().output(1)
