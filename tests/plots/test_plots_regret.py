"""Regrets by evaluation."""

from __future__ import annotations

import numpy as np
import pytest

from gdkl.numerics import DataError
from gdkl.plots import regret_figure


def test_a_line_is_the_geometric_mean_of_runs():
    runs = {"GDKL": [[1.0, 0.01], [0.01, 0.0001]], "random": [[1.0, 1.0], [1.0, 0.0]]}
    figure = regret_figure({"a": runs, "b": {"GDKL": [[1.0]]}}, {"a": 5, "b": 2})
    left, right = (ax for ax in figure.axes if ax.get_visible())
    ours, random = left.get_lines()
    np.testing.assert_allclose(ours.get_ydata(), [0.1, 0.001])
    assert ours.get_xdata().tolist() == [5, 6]
    # A regret of zero has no logarithm.
    np.testing.assert_allclose(random.get_ydata(), [1.0, 1e-3])
    assert right.get_lines()[0].get_xdata().tolist() == [2]


def test_nothing_to_draw_is_an_error():
    with pytest.raises(DataError, match="nothing to draw"):
        regret_figure({}, {})
