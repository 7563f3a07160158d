"""The pictures show the numbers they were given."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy.special import ndtri

from gdkl import Predictive, plots
from gdkl.numerics import DataError, OptionError


def lines_by_label(ax: Axes) -> dict[str, np.ndarray]:
    return {str(line.get_label()): np.asarray(line.get_xydata()) for line in ax.get_lines()}


def standard(n: int) -> Predictive:
    return Predictive.gaussian(np.zeros(n), np.ones(n), np.full(n, 0.5))


@pytest.fixture
def ax() -> Axes:
    return plots.new_figure(4, 3).add_subplot()


def drawn(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=40)
    return stream.getvalue()


class TestPredictiveBand:
    def test_bands_are_the_intervals_of_the_prediction_in_order_of_x(self, ax: Axes) -> None:
        x = np.array([[2.0], [0.0], [1.0]])
        p = Predictive.gaussian(x[:, 0] ** 2, x[:, 0] + 1, x[:, 0] + 0.5)
        plots.predictive_band(ax, x, p)
        assert lines_by_label(ax)["mean"] == pytest.approx(np.array([[0, 0], [1, 1], [2, 4]]))
        outer, _, inner, _ = (collection.get_paths() for collection in ax.collections)
        for paths, level in ((outer, 0.9), (inner, 0.5)):
            corners = np.asarray(paths[0].vertices)
            half = float(ndtri((1 + level) / 2)) * np.sqrt(3)
            assert corners[:, 1].max() == pytest.approx(4 + half)
            assert corners[corners[:, 0] == 2, 1].min() == pytest.approx(4 - half)

    def test_truth_and_data_are_drawn_where_they_are(self, ax: Axes) -> None:
        plots.predictive_band(
            ax, [0, 1], standard(2), observed=([0.3, 0.1], [7.0, 8.0]), truth=([1.0, 0.0], [5.0, 6.0]), gap=(0.4, 0.6)
        )
        lines = lines_by_label(ax)
        assert lines["data"].tolist() == [[0.3, 7.0], [0.1, 8.0]]
        assert lines["truth"].tolist() == [[0.0, 6.0], [1.0, 5.0]]
        assert ax.patches[0].get_extents().width > 0

    def test_a_mixture_is_drawn_by_its_own_quantiles(self, ax: Axes) -> None:
        mixture = Predictive([[-3.0, -3.0], [3.0, 3.0]], np.ones((2, 2)), np.ones((2, 2)))
        plots.predictive_band(ax, [0, 1], mixture, levels=[0.9])
        low, high = mixture.interval(0.9)
        corners = np.asarray(ax.collections[0].get_paths()[0].vertices)
        assert (corners[:, 1].min(), corners[:, 1].max()) == pytest.approx((low[0], high[0]))

    def test_mismatch_and_bad_levels_are_refused(self, ax: Axes) -> None:
        with pytest.raises(DataError, match="3 positions"):
            plots.predictive_band(ax, [0, 1, 2], standard(2))
        with pytest.raises(OptionError, match="between 0 and 1"):
            plots.predictive_band(ax, [0, 1], standard(2), levels=[0.5, 1.0])


class TestCalibration:
    def test_the_curve_counts_what_the_intervals_hold(self) -> None:
        y = np.linspace(-3, 3, 41)
        levels = [0.9, 0.5]
        ax = plots.calibration({"GP": standard(41)}, y, levels=levels)
        drawn_levels, observed = lines_by_label(ax)["GP"].T
        assert drawn_levels.tolist() == [0.5, 0.9]
        expected = [np.mean(np.abs(y) <= ndtri((1 + level) / 2)) for level in (0.5, 0.9)]
        assert observed == pytest.approx(expected)

    def test_an_honest_model_stays_in_the_chance_region_and_a_sure_one_leaves_it(self) -> None:
        y = np.random.default_rng(0).normal(size=2000)
        sure = Predictive.gaussian(np.zeros(2000), np.full(2000, 0.09), np.full(2000, 0.01))
        ax = plots.calibration({"honest": standard(2000), "sure": sure}, y)
        lines = lines_by_label(ax)
        levels, honest = lines["honest"].T
        assert np.abs(honest - levels).max() < 0.04
        assert (lines["sure"][:, 1] < levels).all()
        region = np.asarray(ax.collections[0].get_paths()[0].vertices)
        at_half = region[np.isclose(region[:, 0], 0.5), 1]
        # Two standard errors of a share of one half among 2000.
        assert at_half.max() - at_half.min() == pytest.approx(4 * 0.5 / np.sqrt(2000), rel=0.05)

    def test_methods_keep_their_colours(self) -> None:
        ax = plots.calibration({"DKL": standard(3), "GDKL": standard(3)}, np.zeros(3))
        colors = {line.get_label(): to_hex(line.get_color()) for line in ax.get_lines()}
        assert colors["DKL"] == plots.METHOD_COLORS["DKL"].lower()
        assert colors["GDKL"] == plots.METHOD_COLORS["GDKL"].lower()

    def test_nothing_to_draw_is_refused(self) -> None:
        with pytest.raises(DataError, match="at least one"):
            plots.calibration({}, [0.0])
        with pytest.raises(OptionError, match="levels"):
            plots.calibration({"GP": standard(1)}, [0.0], levels=[0.0])


class TestHistory:
    frame = pd.DataFrame(
        {
            "step": np.arange(1.0, 101.0),
            "objective": np.linspace(3, 1, 100),
            "ell": np.linspace(2, 0.5, 100),
            "kl": np.linspace(1, 0.5, 100),
            "noise": np.full(100, 0.1),
            "learning_rate": np.repeat([1e-2, 1e-3], 50),
        }
    )

    def test_all_terms_are_drawn_and_nothing_else(self) -> None:
        ax = plots.history(self.frame)
        labels = [text.get_text() for text in ax.get_legend().get_texts()]  # type: ignore[union-attr]
        assert labels[0] == "objective"
        assert len(labels) == 3
        raw = ax.get_lines()[0]
        assert np.asarray(raw.get_ydata()) == pytest.approx(self.frame["objective"].to_numpy())

    def test_a_fall_of_the_learning_rate_is_marked_where_it_happens(self) -> None:
        dotted = [line for line in plots.history(self.frame).get_lines() if line.get_linestyle() == ":"]
        assert [line.get_xdata()[0] for line in dotted] == [51.0]  # type: ignore[index]

    def test_an_outlier_does_not_move_the_running_median(self) -> None:
        jumpy = self.frame.assign(objective=self.frame["objective"].mask(self.frame["step"] == 40, 1e6))
        smooth = lines_by_label(plots.history(jumpy, terms=["objective"]))["objective"]
        assert smooth[:, 1].max() < 3.1

    def test_one_row_is_enough(self) -> None:
        assert drawn(plots.history(self.frame.head(1)).figure)  # type: ignore[arg-type]

    def test_wrong_tables_and_terms_are_refused(self) -> None:
        with pytest.raises(DataError, match="column 'step'"):
            plots.history(pd.DataFrame({"objective": [1.0]}))
        with pytest.raises(DataError, match="at least one row"):
            plots.history(self.frame.head(0))
        with pytest.raises(OptionError, match="nope"):
            plots.history(self.frame, terms=["nope"])


class TestFigures:
    def test_figure_one_shows_every_held_out_point_with_its_interval(self) -> None:
        example = plots.toy_example(100, seed=2)
        figure = plots.toy_figure(example)
        left, right = figure.axes
        assert len(lines_by_label(left)["$D_1$"]) == len(example.x1)
        bars = next(c for c in right.collections if isinstance(c, LineCollection))
        lengths = [segment[1][1] - segment[0][1] for segment in bars.get_segments()]
        assert lengths == pytest.approx(2 * float(ndtri(0.95)) * np.sqrt(example.target_variance))
        assert drawn(figure).startswith(b"\x89PNG")

    def test_bands_of_several_models_share_their_axes(self) -> None:
        x = np.linspace(0, 1, 4)
        wild = Predictive.gaussian(x, np.full(4, 1e6), np.full(4, 1e6))
        figure = plots.bands_figure(x, {"GP": standard(4), "DKL": wild, "NNGP": standard(4)}, observed=(x, x))
        assert len(figure.axes) == 3
        assert {ax.get_ylim() for ax in figure.axes} == {figure.axes[0].get_ylim()}
        assert figure.axes[0].get_ylim()[1] < 2
        assert drawn(figure)

    def test_no_models_are_refused(self) -> None:
        with pytest.raises(DataError, match="at least one"):
            plots.bands_figure([0.0], {}, observed=([0.0], [0.0]))


def test_colours_stay_apart() -> None:
    chosen = plots.color_cycle(["mine", "GDKL", "yours", "DKL"])
    assert chosen["GDKL"] == plots.METHOD_COLORS["GDKL"]
    assert len(set(chosen.values())) == 4


def test_pictures_never_touch_the_global_state_of_matplotlib() -> None:
    script = (
        "import io, sys\n"
        "from gdkl import plots\n"
        "plots.toy_figure(plots.toy_example(60)).savefig(io.BytesIO(), format='png')\n"
        "sys.exit('pyplot was imported' if 'matplotlib.pyplot' in sys.modules else 0)"
    )
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


class TestRelevance:
    def test_bars_have_the_relevances_in_order_and_the_names_of_columns(self) -> None:
        frame = pd.DataFrame({"relevance": [0.5, 2.0, 0.0]}, index=["age", "dose", "site"])
        ax = plots.relevance(frame)
        assert [label.get_text() for label in ax.get_yticklabels()] == ["site", "age", "dose"]
        assert [patch.get_width() for patch in ax.patches] == [0.0, 0.5, 2.0]

    def test_only_the_largest_are_drawn_and_the_title_says_so(self) -> None:
        ax = plots.relevance(np.arange(30.0), most=4)
        assert [patch.get_width() for patch in ax.patches] == [26.0, 27.0, 28.0, 29.0]
        assert "4 most relevant of 30" in ax.get_title(loc="left")

    def test_what_is_no_relevance_is_refused(self) -> None:
        for wrong in ([], [1.0, np.nan], [-1.0]):
            with pytest.raises(DataError, match="relevance_"):
                plots.relevance(wrong)
        with pytest.raises(OptionError, match="at least one"):
            plots.relevance([1.0], most=0)
