"""Pictures of calibration, groups and rows show the numbers they were given."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gdkl import Predictive, metrics, plots
from gdkl.numerics import DataError, OptionError

RNG = np.random.default_rng(0)
N = 60
MEAN, VARIANCE = RNG.normal(size=N), RNG.uniform(0.5, 2, N)
Y = MEAN + np.sqrt(VARIANCE) * RNG.normal(size=N)
P = Predictive.gaussian(MEAN, VARIANCE, VARIANCE / 4)
PIT = stats.norm(MEAN, np.sqrt(VARIANCE)).cdf(Y)


def line(ax, label):
    (found,) = [one for one in ax.get_lines() if one.get_label() == label]
    return np.asarray(found.get_xdata()), np.asarray(found.get_ydata())


def test_the_histogram_counts_quantiles():
    ax = plots.pit_histogram(P, Y, bins=5)
    heights = [bar.get_height() for bar in ax.containers[0]]
    assert heights == np.histogram(PIT, 5, (0, 1))[0].tolist()
    band = next(one for one in ax.patches if one.get_label() == "chance")
    assert band.get_y() == pytest.approx(stats.binom.ppf(0.025, N, 0.2))
    assert band.get_y() + band.get_height() == pytest.approx(stats.binom.ppf(0.975, N, 0.2))


def test_the_curve_has_the_part_below_each_quantile():
    ax = plots.quantile_calibration(P, Y)
    x, y = next((a, b) for a, b in (np.asarray(one.get_xydata()).T for one in ax.get_lines()) if len(a) == 19)
    assert y == pytest.approx([(level >= PIT).mean() for level in x])


def test_intervals_are_those_of_the_rows_in_order():
    ax = plots.sorted_intervals(P, Y, level=0.8, most=20)
    low, high = P.interval(0.8)
    segments = np.array([path.vertices for path in ax.collections[0].get_paths()])
    order = np.argsort(MEAN)[np.linspace(0, N - 1, 20).round().astype(int)]
    assert segments[:, 0, 1] == pytest.approx(low[order])
    assert segments[:, 1, 1] == pytest.approx(high[order])
    inside = (low[order] <= Y[order]) & (Y[order] <= high[order])
    assert line(ax, "target inside")[1] == pytest.approx(Y[order][inside])
    assert line(ax, "target outside")[1] == pytest.approx(Y[order][~inside])


def test_refusing_rows_keeps_the_mean_loss_of_the_others():
    doubt, loss = RNG.uniform(size=40), RNG.uniform(size=40)
    ax = plots.rejection_curve(doubt, loss, root=True)
    share, kept = line(ax, "by uncertainty")
    for k in (0, 7, 30):
        sure = np.argsort(doubt)[: 40 - k]
        assert share[k] == pytest.approx(k / 40)
        assert kept[k] == pytest.approx(np.sqrt(loss[sure].mean()))
    assert (line(ax, "if losses were known")[1] <= kept + 1e-12).all()
    assert line(ax, "at random")[1][0] == pytest.approx(np.sqrt(loss.mean()))


def test_the_share_of_the_function_is_that_of_the_variances():
    ax = plots.function_share(P)
    assert line(ax, "median 25 %")[0][0] == pytest.approx(0.25)
    assert sum(bar.get_height() for bar in ax.containers[0]) == N


def test_groups_beyond_chance_are_told_apart():
    ax = plots.group_bars(["a", "b", "c"], [0.9, 0.5, 0.8], [0.8] * 3, [1.0] * 3, expected=0.9)
    assert line(ax, "beyond chance")[0].tolist() == [0.5]
    assert line(ax, "beyond chance")[1].tolist() == [1]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["c", "b", "a"]


def test_far_rows_are_where_they_are():
    ax = plots.far_rows([0.1, 0.2, 3.0], [1.0, 2.0, 3.0], [False, True, False], usual=1.5)
    assert line(ax, "target outside")[1].tolist() == [2.0]
    assert line(ax, "target inside")[0].tolist() == [0.1, 3.0]


def test_the_learning_curve_has_its_errors():
    ax = plots.learning_curve([10, 100], [-2.0, -1.0], [0.5, 0.25])
    (bars,) = ax.containers
    ends = np.array([path.vertices for path in bars.lines[2][0].get_paths()])
    assert ends[:, :, 1].tolist() == [[-2.5, -1.5], [-1.25, -0.75]]


def test_a_learning_rate_that_falls_at_every_step_is_not_marked():
    import pandas as pd  # noqa: PLC0415

    steps = np.arange(1.0, 51.0)
    frame = pd.DataFrame({"step": steps, "objective": 1 / steps, "learning_rate": 0.01 / steps})
    stepwise = frame.assign(learning_rate=np.where(steps < 30, 0.01, 0.001))
    counts = [sum(one.get_linestyle() == ":" for one in plots.history(each).get_lines()) for each in (frame, stepwise)]
    assert counts == [0, 1]


@pytest.mark.parametrize(
    ("draw", "error"),
    [
        (lambda: plots.pit_histogram(P, Y, bins=0), OptionError),
        (lambda: plots.sorted_intervals(P, Y, most=0), OptionError),
        (lambda: plots.rejection_curve([1.0], [1.0, 2.0]), DataError),
        (lambda: plots.far_rows([1.0], [1.0, 2.0], [True], usual=1.0), DataError),
        (lambda: plots.group_bars([], [], [], []), DataError),
        (lambda: plots.learning_curve([1], [], []), DataError),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, error):
    with pytest.raises(error):
        draw()


def test_the_band_of_the_curve_is_the_metrics_one():
    ax = plots.quantile_calibration(P, Y)
    band = ax.collections[0].get_paths()[0].vertices
    low, high = metrics.coverage_band(N, 0.5)
    at_half = sorted(set(band[np.isclose(band[:, 0], 0.5), 1].round(9)))
    assert at_half == pytest.approx([float(low), float(high)])
