"""Warps of a target against SciPy, closed forms and numerical derivatives."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gdkl import GdklError
from gdkl.inputs import LinearTails, LogWarp, YeoJohnson, candidate_warps, check_warp_option, joint_warp, warp_from_spec
from gdkl.inputs.function_warp import FunctionWarp

RNG = np.random.default_rng(0)
Y = np.sort(RNG.gamma(2.0, size=200))
EXTREMES = [0.0, 1e-300, 1e-8, 1.0, 709.0, 1e5, 1e140]
PAIRS = {
    "sqrt": (np.sqrt, np.square),
    "log": (np.log, np.exp),
    "log1p": (np.log1p, np.expm1),
    "cube root": (np.cbrt, lambda z: z**3),
    "arcsinh": (np.arcsinh, np.sinh),
    "square": (np.square, np.sqrt),
}
FUNCTION_WARPS = [FunctionWarp.fit(*pair, Y) for pair in PAIRS.values()]
POWER_WARPS = [YeoJohnson(1.0, 2.0, power) for power in (0.0, 1e-300, 0.3, 1.0, 1.7, 2.0)]

TAILS = [LinearTails(YeoJohnson.fit(Y), Y.min(), Y.max()), LinearTails(LogWarp(), None, Y.max())]

powers = st.floats(0.0, 2.0)
signed = st.one_of(st.floats(-1e140, 1e140), st.sampled_from([sign * v for v in EXTREMES for sign in (-1, 1)]))


@given(power=powers, y=st.lists(signed, min_size=1, max_size=20))
def test_yeo_johnson_comes_back_to_the_last_digits(power, y):
    y = np.array(y)
    warp = YeoJohnson(0.0, 1.0, power)
    z = warp.forward(y)
    assert np.isfinite(z).all()
    # log y multiplies the rounding error of the logarithm: 322 · eps at 1e140.
    np.testing.assert_allclose(warp.inverse(z), y, rtol=1e-12, atol=1e-290)


@pytest.mark.parametrize("power", [0.0, 0.4, 1.0, 1.5, 2.0])
def test_yeo_johnson_is_scipys_of_the_scaled_targets(power):
    np.testing.assert_allclose(YeoJohnson(1.5, 0.7, power).forward(Y), stats.yeojohnson((Y - 1.5) / 0.7, power))


@given(power=powers, z=st.lists(st.floats(allow_nan=False), min_size=2, max_size=20))
def test_inverses_are_finite_and_increasing_on_all_numbers(power, z):
    z = np.sort(np.array(z))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for warp in (YeoJohnson(3.0, 0.1, power), LogWarp(), *FUNCTION_WARPS):
            y = warp.inverse(z)
            assert np.isfinite(y).all()
            assert np.isfinite(y**2).all()
            # sqrt and square undo each other to a billionth below 0.
            assert (np.diff(y) >= -1e-15).all()


@pytest.mark.parametrize("warp", [*POWER_WARPS, YeoJohnson.fit(Y), LogWarp(), *FUNCTION_WARPS, *TAILS])
def test_derivatives_and_round_trips_on_the_targets(warp):
    np.testing.assert_allclose(warp.inverse(warp.forward(Y)), Y, rtol=1e-12)
    assert (np.diff(warp.forward(Y)) > 0).all()
    h = 1e-6 * Y
    slope = (warp.forward(Y + h) - warp.forward(Y - h)) / (2 * h)
    np.testing.assert_allclose(warp.log_derivative(Y), np.log(slope), atol=1e-5)


def test_yeo_johnson_finds_the_power_of_maximum_likelihood():
    fitted = YeoJohnson.fit(Y)
    assert fitted.centre == np.median(Y)
    assert fitted.spread == pytest.approx(stats.iqr(Y) / stats.norm.ppf(0.75) / 2, rel=1e-3)
    scaled = (Y - fitted.centre) / fitted.spread
    grid = np.linspace(0, 2, 201)
    assert fitted.power == pytest.approx(grid[np.argmax([stats.yeojohnson_llf(g, scaled) for g in grid])], abs=0.01)


def test_the_power_stops_at_the_logarithm():
    heavy, long = np.random.default_rng(1).standard_cauchy(500), np.exp(3 * np.random.default_rng(2).normal(size=500))
    for y in (long, -long, heavy, np.abs(heavy)):
        assert 0 <= YeoJohnson.fit(y).power <= 2
    for power in (-0.1, 2.1, np.nan):
        with pytest.raises(GdklError, match="between 0 and 2"):
            YeoJohnson(0.0, 1.0, power)


@pytest.mark.parametrize(
    "y",
    [
        np.r_[np.zeros(80), RNG.poisson(3, 20)],
        np.ones(5),
        np.r_[np.zeros(80), 1e-300, 1e10],
        1e100 * Y,
        1e-100 * Y,
        np.array([1.0, 1.0, 1.0, 2.0]),
    ],
)
def test_yeo_johnson_is_well_defined_where_there_is_no_interquartile_range(y):
    warp = YeoJohnson.fit(y)
    np.testing.assert_allclose(warp.inverse(warp.forward(y)), y, rtol=1e-9, atol=1e-12 * np.ptp(y))
    assert np.isfinite(warp.log_derivative(y)).all()


@pytest.mark.parametrize("warp", TAILS)
def test_tails_are_tangents_beyond_the_last_target(warp):
    end = Y.max()
    slope = np.exp(warp.warp.log_derivative(np.array([end])))
    beyond = end + np.array([1.0, 10.0, 1e6])
    np.testing.assert_allclose(warp.forward(beyond) - warp.forward(np.array([end])), slope * (beyond - end), rtol=1e-12)
    np.testing.assert_allclose(warp.inverse(warp.forward(beyond)), beyond, rtol=1e-9)
    np.testing.assert_allclose(warp.log_derivative(beyond), np.log(slope) * np.ones(3))
    inside = Y[end > Y]
    np.testing.assert_array_equal(warp.forward(inside), warp.warp.forward(inside))


def test_nothing_is_below_a_logarithm():
    for warp in (LogWarp(), FunctionWarp.fit(np.log, np.exp, Y)):
        assert warp.forward(np.array([0.0, -3.0])).tolist() == [-np.inf, -np.inf]
        assert (warp.inverse(np.array([-np.inf, -800.0])) > 0).all()


def test_functions_are_kept_to_where_they_undo_each_other():
    counts = np.random.default_rng(3).poisson(2, 100).astype(float)
    warp = FunctionWarp.fit(np.sqrt, np.square, counts)
    np.testing.assert_array_equal(warp.forward(counts), np.sqrt(counts))
    assert warp.low == pytest.approx(0, abs=1e-8)
    np.testing.assert_allclose(warp.inverse(np.array([-5.0, -0.1, 0.0])), 0, atol=1e-15)
    assert warp.forward(np.array([-1.0])) == -np.inf
    # Below a bound, too: -log(-y) of negative targets.
    above = FunctionWarp.fit(lambda y: -np.log(-y), lambda z: -np.exp(-z), -Y)
    assert above.forward(np.array([1.0])) == np.inf
    assert (above.inverse(np.array([1e3, 1e9])) < 0).all()


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((np.log, np.exp), "finite number per target"),
        ((np.mean, np.exp), "finite number per target"),
        ((np.negative, np.negative), "increase"),
        ((np.square, np.sqrt), "increase"),
        ((np.sinh, np.tanh), "undo the first"),
        ((np.cbrt, np.log), "undo the first"),
        ((np.floor, np.floor), "undo the first"),
        ((float, float), "functions of arrays"),
    ],
)
def test_functions_that_are_no_warp_are_refused_in_one_line(pair, message):
    with pytest.raises(GdklError, match=message) as caught:
        candidate_warps(np.linspace(-2.0, 2.0, 40), pair)
    assert "\n" not in str(caught.value)


def test_candidates():
    assert candidate_warps(np.random.default_rng(4).normal(size=4000)) == [None]
    low, high = Y.min(), Y.max()
    assert candidate_warps(Y) == [None, LinearTails(YeoJohnson.fit(Y), low, high), LinearTails(LogWarp(), low, high)]
    assert candidate_warps(Y - 1) == [None, LinearTails(YeoJohnson.fit(Y - 1), low - 1, high - 1)]
    assert candidate_warps(Y, None) == [None]
    assert candidate_warps(Y, "log") == [LogWarp()]
    [own] = candidate_warps(Y, PAIRS["sqrt"])
    np.testing.assert_array_equal(own.forward(Y), np.sqrt(Y))
    with pytest.raises(GdklError, match=r"needs targets above 0, and the smallest is -1"):
        candidate_warps(Y - 1 - Y[0], "log")


def test_options():
    for option in ("auto", None, "log", (np.log, np.exp)):
        check_warp_option(option)
    for option in ("exp", 3, np.log, (np.log,), (np.log, "exp"), [], np.ones(2)):
        with pytest.raises(GdklError, match="pair"):
            check_warp_option(option)


@pytest.mark.parametrize("warp", [None, LogWarp(), YeoJohnson.fit(Y), *TAILS])
def test_warps_survive_json(warp):
    spec = json.loads(json.dumps(None if warp is None else warp.to_spec()))
    assert warp_from_spec(spec) == warp


def test_functions_are_passed_again():
    warp = FunctionWarp.fit(*PAIRS["log1p"], Y)
    spec = json.loads(json.dumps(warp.to_spec()))
    assert warp_from_spec(spec, PAIRS["log1p"]) == warp
    with pytest.raises(GdklError, match=r"factories=\{'warp'"):
        warp_from_spec(spec)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"kind": "exp"},
        {"kind": []},
        {"kind": "log", "power": 1.0},
        {"kind": "yeo-johnson", "centre": 0.0, "spread": 1.0, "power": 3.0},
        {"kind": "yeo-johnson", "centre": "a", "spread": 1.0, "power": 1.0},
        {"kind": "yeo-johnson", "centre": 0.0},
    ],
)
def test_damaged_specs_are_refused(spec):
    with pytest.raises(GdklError, match="cannot be read"):
        warp_from_spec(spec)


def test_warps_of_several_outputs():
    values = np.stack([Y, Y, Y], axis=-1)
    joint = joint_warp([None, LogWarp(), YeoJohnson(1.0, 2.0, 0.3)])
    np.testing.assert_array_equal(joint.forward(values)[..., 1], np.log(Y))
    np.testing.assert_allclose(joint.inverse(joint.forward(values)), values)
    np.testing.assert_array_equal(joint.log_derivative(values)[..., :2], np.stack([0 * Y, -np.log(Y)], axis=-1))
    assert joint_warp([None, None]) is None
    assert joint_warp([LogWarp()]) == LogWarp()
