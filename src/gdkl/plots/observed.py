"""Predictions beside what came true: one point with its interval per row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from gdkl.numerics import DataError
from gdkl.plots.style import BLUE, DASHED, GREY, VERMILION, add_legend, dress, panel_of
from gdkl.predictive import ClassPredictive, Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def observed_against_predicted(
    predictive: Predictive, y: ArrayLike, *, level: float = 0.9, title: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw each target against its predicted mean, with the interval that should hold it.

    An interval that meets the diagonal holds its target; those that do not have another colour. An honest model has
    one minus ``level`` of them.

    Args:
        predictive: Predictions of one output.
        y: What came true.
        level: Of the intervals.
        title: Of the panel.
        ax: Where to draw; None for a new figure.

    Example:
        >>> p = Predictive.gaussian([0.0, 1.0], [1.0, 1.0], [0.5, 0.5])
        >>> ax = observed_against_predicted(p, [0.3, 4.0])
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['in its 90 % interval (1)', 'outside (1)']
    """
    if isinstance(predictive, ClassPredictive):
        raise DataError("this picture is of numbers, and these are classes: use plots.reliability_figure.")
    truth = np.asarray(y, dtype=np.float64).ravel()
    mean = predictive.mean.ravel()
    if truth.shape != mean.shape:
        raise DataError(f"y has {truth.size} targets and the prediction {mean.size}: give one per prediction.")
    low, high = (end.ravel() for end in predictive.interval(level))
    inside = (low <= truth) & (truth <= high)
    ax = panel_of(ax, 4.4, 4.2)
    for rows, color, label in ((inside, BLUE, f"in its {100 * level:g} % interval"), (~inside, VERMILION, "outside")):
        if bool(rows.any()):
            bars = (mean[rows] - low[rows], high[rows] - mean[rows])
            look: dict[str, Any] = {"color": color, "markersize": 3.5, "elinewidth": 0.9, "alpha": 0.75}
            # The mean of a skewed distribution may lie beyond its interval.
            ends = np.maximum(bars, 0.0)
            ax.errorbar(truth[rows], mean[rows], ends, fmt="o", label=f"{label} ({rows.sum()})", **look)
    line = [float(truth.min()), float(truth.max())]
    ax.plot(line, line, color=GREY, linewidth=1, linestyle=DASHED, zorder=1.9)
    dress(ax, title=title, xlabel="observed", ylabel="predicted")
    add_legend(ax, loc="upper left")
    return ax
