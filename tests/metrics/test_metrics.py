"""Scores against closed forms, numerical integration and samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from gdkl import GdklError, Predictive, metrics

RNG = np.random.default_rng(0)
MEAN, VARIANCE, Y = RNG.normal(size=6), RNG.uniform(0.2, 3, 6), RNG.normal(size=6)


def _gaussian():
    return Predictive.gaussian(MEAN, VARIANCE, VARIANCE / 2)


def _mixture():
    return Predictive([MEAN, MEAN - 1.0], [VARIANCE, VARIANCE / 3], [VARIANCE, VARIANCE])


def test_log_likelihood_rmse_and_mae_are_their_definitions():
    p = _gaussian()
    assert metrics.log_likelihood(p, Y) == pytest.approx(stats.norm(MEAN, np.sqrt(VARIANCE)).logpdf(Y).mean())
    assert metrics.rmse(p, Y) == pytest.approx(np.sqrt(((MEAN - Y) ** 2).mean()))
    assert metrics.mae(p, Y) == pytest.approx(np.abs(MEAN - Y).mean())


def test_crps_of_a_gaussian_is_its_closed_form():
    s = np.sqrt(VARIANCE)
    z = (Y - MEAN) / s
    closed = s * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert metrics.crps(_gaussian(), Y) == pytest.approx(closed.mean(), rel=1e-12)


@pytest.mark.parametrize("make", [_gaussian, _mixture])
def test_crps_is_the_integral_of_the_squared_distance_of_the_cdfs(make):
    p = make()

    def of_point(i):
        one = Predictive(
            p.component_means[:, i : i + 1],
            p.component_variances[:, i : i + 1],
            p.component_latent_variances[:, i : i + 1],
        )
        below = integrate.quad(lambda t: float(one.cdf([t])[0]) ** 2, -30, Y[i], limit=200)[0]
        above = integrate.quad(lambda t: (1 - float(one.cdf([t])[0])) ** 2, Y[i], 30, limit=200)[0]
        return below + above

    assert metrics.crps(p, Y) == pytest.approx(np.mean([of_point(i) for i in range(len(Y))]), rel=1e-6)


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_coverage_of_an_honest_prediction_is_its_level(level):
    n = 40_000
    mean, variance = RNG.normal(size=n), RNG.uniform(0.1, 2, n)
    y = mean + np.sqrt(variance) * RNG.standard_normal(n)
    p = Predictive.gaussian(mean, variance, variance)
    assert metrics.coverage(p, y, level) == pytest.approx(level, abs=4 * np.sqrt(level * (1 - level) / n))
    half = stats.norm.ppf((1 + level) / 2)
    assert metrics.interval_width(p, level) == pytest.approx(2 * half * np.sqrt(variance).mean())


def test_summary_holds_every_score():
    p = _mixture()
    found = metrics.summary(p, Y)
    for name in ("log_likelihood", "rmse", "mae", "crps", "coverage"):
        assert found[name] == getattr(metrics, name)(p, Y)
    assert found["interval_width"] == metrics.interval_width(p)


def test_bad_targets_are_refused():
    with pytest.raises(GdklError, match="shape"):
        metrics.rmse(_gaussian(), Y[:-1])
    with pytest.raises(GdklError, match="NaN"):
        metrics.log_likelihood(_gaussian(), np.where(np.arange(6) == 2, np.nan, Y))
