"""Targets scaled with and without warps."""

from __future__ import annotations

import numpy as np
import pytest

from gdkl import GdklError
from gdkl.inputs import LogWarp, TargetScaler, YeoJohnson

Y = np.random.default_rng(0).gamma(2.0, size=(300, 3))
WARPS = (None, LogWarp(), YeoJohnson(1.0, 2.0, 0.3))


def test_without_warps_nothing_changed():
    scaler = TargetScaler.fit(Y)
    np.testing.assert_allclose(scaler.scaled(Y), ((Y - Y.mean(0)) / Y.std(0)).T)
    np.testing.assert_allclose(scaler.log_derivative(Y), np.broadcast_to(-np.log(Y.std(0))[:, None], (3, 300)))
    assert scaler.warps == TargetScaler(scaler.mean, scaler.std, False).warps == (None, None, None)


def test_targets_are_warped_before_they_are_standardised():
    scaler = TargetScaler.fit(Y, WARPS)
    scaled = scaler.scaled(Y)
    np.testing.assert_allclose(scaled.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.std(axis=1), 1)
    np.testing.assert_allclose(scaled[1], (np.log(Y[:, 1]) - np.log(Y[:, 1]).mean()) / np.log(Y[:, 1]).std())
    # Back in warped units: through the inverse they are the targets.
    back = scaler.means(scaled)
    np.testing.assert_allclose(back[:, 0], Y[:, 0])
    np.testing.assert_allclose(np.exp(back[:, 1]), Y[:, 1])
    np.testing.assert_allclose(WARPS[2].inverse(back[:, 2]), Y[:, 2])
    np.testing.assert_allclose(scaler.variances(np.ones((3, 1)))[0, 1], np.log(Y[:, 1]).var())


@pytest.mark.parametrize("warp", [*WARPS, LogWarp()])
def test_log_derivative_is_that_of_scaling(warp):
    y, h = Y[:, 0], 1e-6 * Y[:, 0]
    scaler = TargetScaler.fit(y, [warp])
    slope = (scaler.scaled(y + h) - scaler.scaled(y - h)) / (2 * h)
    assert scaler.log_derivative(y).shape == (1, 300)
    np.testing.assert_allclose(scaler.log_derivative(y), np.log(slope), atol=1e-7)


def test_constant_targets_have_a_scale_of_one_after_their_warp_too():
    # Constant up to rounding, too.
    y = np.full(5, 1e9) + np.array([0.0, 1e-6, 0.0, -1e-6, 0.0])
    scaler = TargetScaler.fit(y, [LogWarp()])
    np.testing.assert_allclose((scaler.mean, scaler.std), ([np.log(1e9)], [1.0]), rtol=1e-12)
    assert (scaler.training_targets(y) == 0).all()
    np.testing.assert_allclose(scaler.scaled(np.exp(1) * y), 1, rtol=1e-9)
    with pytest.raises(GdklError, match="y is constant: use inference='exact'"):
        scaler.require_varying(len(y))
