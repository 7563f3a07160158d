"""Bands of chance against simulation."""

from __future__ import annotations

import numpy as np
import pytest

from gdkl import ClassPredictive, metrics
from gdkl.numerics import OptionError


@pytest.mark.parametrize(("n", "level"), [(40, 0.9), (200, 0.5)])
def test_coverage_lies_in_its_band_as_often_as_it_says(n, level):
    low, high = metrics.coverage_band(n, level, 0.95)
    drawn = np.random.default_rng(0).binomial(n, level, 20_000) / n
    inside = np.mean((low <= drawn) & (drawn <= high))
    # A whole number of targets: the band holds at least its probability, and no more than one number on each side.
    assert 0.945 <= inside <= 0.985


def test_the_calibration_error_of_right_probabilities_lies_below_its_band_as_often_as_it_says():
    rng = np.random.default_rng(1)
    probs = rng.dirichlet([1.0, 1.0, 1.0], 150)
    most = metrics.ece_band(probs, 0.9)
    cumulative = probs.cumsum(axis=1)
    errors = [
        metrics.ece(probs, np.minimum((cumulative < rng.uniform(size=(150, 1))).sum(axis=1), 2)) for _ in range(300)
    ]
    assert np.mean(np.array(errors) <= most) == pytest.approx(0.9, abs=0.05)


def test_the_band_of_a_prediction_is_that_of_its_probabilities():
    probs = np.random.default_rng(2).dirichlet([1.0, 2.0], 60)
    p = ClassPredictive(np.log(probs), ["a", "b"], np.zeros((60, 2)), np.zeros((60, 2)))
    assert metrics.ece_band(p) == pytest.approx(metrics.ece_band(probs))


def test_more_rows_have_narrower_bands():
    probs = np.tile([[0.7, 0.3]], (50, 1))
    assert metrics.ece_band(np.tile(probs, (10, 1))) < 0.5 * metrics.ece_band(probs)


@pytest.mark.parametrize("chance", [0.0, 1.0, -1.0])
def test_a_band_needs_a_probability(chance):
    with pytest.raises(OptionError, match="strictly between"):
        metrics.coverage_band(10, 0.9, chance)
    with pytest.raises(OptionError, match="strictly between"):
        metrics.ece_band([[0.5, 0.5]], chance)


def test_a_band_needs_a_target():
    with pytest.raises(OptionError, match="at least"):
        metrics.coverage_band(0, 0.9)
