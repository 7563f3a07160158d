"""Scores against closed forms, numerical integration and samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from gdkl import GdklError, Predictive, metrics
from gdkl.inputs import LogWarp

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


def test_scores_of_a_warped_prediction_are_in_the_targets_units():
    y, p = np.exp(Y), Predictive([MEAN], [VARIANCE], [VARIANCE / 2], warps=[LogWarp()])
    truth = stats.lognorm(np.sqrt(VARIANCE), scale=np.exp(MEAN))
    found = metrics.summary(p, y)
    assert found["log_likelihood"] == pytest.approx(truth.logpdf(y).mean())
    assert found["rmse"] == pytest.approx(np.sqrt(((truth.mean() - y) ** 2).mean()))
    assert found["crps"] == pytest.approx(p.crps(y).mean())
    low, high = truth.interval(0.9)
    assert found["coverage"] == ((low <= y) & (y <= high)).mean()
    assert found["interval_width"] == pytest.approx((high - low).mean())


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


def _several():
    """Three targets, one a thousand times as large as the others, from two members."""
    rng, unit = np.random.default_rng(1), np.array([1.0, 1000.0, 1.0])
    means, variances = rng.normal(size=(2, 30, 3)) * unit, rng.uniform(0.2, 3, size=(2, 30, 3)) * unit**2
    return Predictive(means, variances, variances / 2), rng.normal(size=(30, 3)) * unit


def test_summary_of_several_targets_scores_each_in_its_own_unit():
    p, y = _several()
    found = metrics.summary(p, y, names=["length", "weight", "age"])
    for k, name in enumerate(["length", "weight", "age"]):
        one = Predictive(p.component_means[..., k], p.component_variances[..., k], p.component_latent_variances[..., k])
        alone = metrics.summary(one, y[:, k])
        assert {score: found[f"{score}[{name}]"] for score in alone} == alone
        assert found[f"rmse[{name}]"] == pytest.approx(np.sqrt(((p.mean[:, k] - y[:, k]) ** 2).mean()))
    assert found["rmse[weight]"] > 100 * found["rmse[age]"]
    # Without units the average is that of the targets'.
    for score in ("log_likelihood", "coverage"):
        assert found[score] == pytest.approx(
            np.mean([found[f"{score}[{name}]"] for name in ("length", "weight", "age")])
        )
    numbered = metrics.summary(p, y)
    assert numbered["mae[1]"] == found["mae[weight]"]
    assert len(numbered) == 6 * 4
    # A list of rows serves as well as an array.
    assert metrics.summary(p, y.tolist()) == numbered


def test_summary_of_one_target_is_as_it_was():
    p, y = _several()
    column = Predictive(*(part[..., :1] for part in (p.component_means, p.component_variances, p.component_variances)))
    assert (
        set(metrics.summary(column, y[:, :1]))
        == set(metrics.summary(_mixture(), Y))
        == {"log_likelihood", "rmse", "mae", "crps", "coverage", "interval_width"}
    )
    for names in (["a", "b"], ["a", "a", "b"], ["a", "b", "c", "d"]):
        with pytest.raises(GdklError, match="does not fit 3 targets: give one each"):
            metrics.summary(p, y, names=names)


def test_bad_targets_are_refused():
    with pytest.raises(GdklError, match="shape"):
        metrics.rmse(_gaussian(), Y[:-1])
    with pytest.raises(GdklError, match="NaN"):
        metrics.log_likelihood(_gaussian(), np.where(np.arange(6) == 2, np.nan, Y))
