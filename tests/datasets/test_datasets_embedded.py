"""Tables that need no file."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gdkl import datasets
from gdkl.numerics import OptionError


def test_diabetes_is_in_its_original_units() -> None:
    table = datasets.load("diabetes")
    assert (table.X.shape, table.y.shape) == ((442, 10), (442,))
    assert table.X.dtype == table.y.dtype == np.float64
    assert table.X[0].tolist() == pytest.approx([59, 2, 32.1, 101, 157, 93.2, 38, 4, 4.8598, 87])
    assert table.y[0] == 151.0
    info = datasets.describe("diabetes")
    assert (info.rows, info.columns) == table.X.shape


@pytest.mark.parametrize("x", [-2.0, 0.0, 1.3, 6.0, 12.0])
def test_toy_function_is_the_papers(x: float) -> None:
    expected = 0.6 - math.exp(-((x - 2) ** 2)) - math.exp(-((x - 6) ** 2) / 10) - 1 / (x**2 + 1)
    assert float(datasets.toy_function(x)) == pytest.approx(expected, rel=1e-14)
    assert datasets.toy_function([[x], [x]]).shape == (2, 1)


def test_toy_is_the_papers_draw() -> None:
    X, y, feature_names, target_name = datasets.load("toy")
    assert (X.shape, y.shape, feature_names, target_name) == ((800, 1), (800,), ("x",), "y")
    assert X.min() >= -2
    assert X.max() <= 12
    # 800 uniform points leave no gap of a tenth of the range, and their mean is 5 ± 3 standard errors.
    assert np.diff(np.sort(X[:, 0])).max() < 0.2
    assert X.mean() == pytest.approx(5.0, abs=3 * 14 / math.sqrt(12 * 800))
    noise = y - datasets.toy_function(X[:, 0])
    assert noise.mean() == pytest.approx(0.0, abs=3 * math.sqrt(0.05 / 800))
    assert noise.var() == pytest.approx(0.05, rel=3 * math.sqrt(2 / 800))
    assert abs(np.corrcoef(noise, X[:, 0])[0, 1]) < 3 / math.sqrt(800)


def test_toy_depends_on_the_seed_alone() -> None:
    np.random.seed(1)  # noqa: NPY002  (the global state must not matter)
    first = datasets.load("toy", seed=5)
    np.random.seed(2)  # noqa: NPY002
    again = datasets.load("toy", seed=5)
    np.testing.assert_array_equal(first.X, again.X)
    np.testing.assert_array_equal(first.y, again.y)
    assert not np.array_equal(first.X, datasets.load("toy", seed=6).X)
    np.testing.assert_array_equal(datasets.load("toy").X, datasets.load("toy", seed=0).X)


def test_toy_without_noise_is_the_function() -> None:
    table = datasets.toy(50, seed=3, noise_variance=0.0)
    np.testing.assert_array_equal(table.y, datasets.toy_function(table.X[:, 0]))
    assert table.name == "toy"


@pytest.mark.parametrize("options", [{"n": 0}, {"seed": -1}, {"noise_variance": -0.1}])
def test_toy_refuses_what_makes_no_sense(options: dict[str, float]) -> None:
    with pytest.raises(OptionError, match="toy needs"):
        datasets.toy(**options)  # type: ignore[arg-type]
