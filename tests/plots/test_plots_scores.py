"""Curves and dots: what is drawn are the numbers passed."""

from __future__ import annotations

import numpy as np
import pytest

from gdkl.metrics import calibration_bins
from gdkl.numerics import DataError
from gdkl.plots import reliability_bars, reliability_diagram, score_curves, score_dots
from gdkl.plots.scores import limits


def test_curves_are_the_scores_and_published_ones_are_dashed() -> None:
    ours = {"GDKL": {100.0: (-2.0, 0.1), 50.0: (-2.5, np.nan)}}
    ax = score_curves(ours, {"GDKL": {50.0: (-2.6, 0.2)}, "DUE": {100.0: (-2.2, 0.0)}})
    drawn = {tuple(line.get_xdata()): line for line in ax.lines if line.get_marker() == "o"}
    np.testing.assert_array_equal(drawn[50.0, 100.0].get_ydata(), [-2.5, -2.0])
    dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert [line.get_ydata()[0] for line in dashed] == [-2.6, -2.2]
    assert dashed[0].get_color() == drawn[50.0, 100.0].get_color()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["DUE", "GDKL"]
    assert ax.get_xscale() == "log"


def test_a_method_far_from_the_others_is_named_and_does_not_flatten_them() -> None:
    ours = {"GDKL": {50.0: (-1.2, 0.1), 100.0: (-1.1, 0.1)}, "DKL": {50.0: (-421.0, 208.0), 100.0: (-1.5, 0.1)}}
    ax = score_curves(ours)
    assert ax.get_ylim()[0] > -3
    assert "DKL is outside" in ax.get_xlabel()


def test_dots_by_method_from_the_top_with_the_far_one_at_the_edge() -> None:
    ax = score_dots({"GDKL": {"test": (-2.3, 0.1), "train": (-1.9, 0.1)}, "DKL": {"test": (-553.0, 265.0)}})
    assert [label.get_text() for label in ax.get_yticklabels()] == ["DKL", "GDKL"]
    assert [text.get_text() for text in ax.texts] == ["−553"]
    assert -4 < ax.get_xlim()[0] < -2.3


@pytest.mark.parametrize(
    ("values", "inside", "outside"),
    [
        ([-2.25, -2.3, -2.34, -380.0], [-2.34, -2.25], [-380.0]),
        ([4.62, 5.08, 5.51, 2.18, 2.9], [2.18, 5.51], []),
        ([0.3, 0.3, 0.3, 0.7], [0.3], [0.7]),
        ([1.0], [1.0], []),
        ([0.0, float("nan"), 1.0], [0.0, 1.0], []),
    ],
)
def test_ends_of_an_axis(values: list[float], inside: list[float], outside: list[float]) -> None:
    low, high = limits(values)
    assert all(low < value < high for value in inside)
    assert all(not low <= value <= high for value in outside)


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(DataError, match="nothing to draw"):
        score_curves({})
    with pytest.raises(DataError, match="nothing to draw"):
        score_dots({"GDKL": {}})


def test_bars_of_counted_predictions_are_those_of_the_predictions() -> None:
    probs = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    whole, counted = reliability_diagram(probs, [0, 1, 1]), reliability_bars(calibration_bins(probs, [0, 1, 1]))
    assert [bar.get_height() for bar in counted.patches] == [bar.get_height() for bar in whole.patches]
    assert len(counted.patches) == 6
