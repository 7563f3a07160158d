"""Calibration curves: do intervals hold as many observations as they promise?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from numpy.typing import ArrayLike
from scipy.stats import binom

from gdkl.metrics import coverage
from gdkl.numerics import DataError, OptionError
from gdkl.plots.style import FONT_SIZE, GREY, PALE, add_legend, color_cycle, dress, panel_of
from gdkl.predictive import ClassPredictive, FloatArray, Predictive

#: Levels at which coverage is counted unless told otherwise.
DEFAULT_LEVELS: FloatArray = np.linspace(0.05, 0.95, 19)


def coverage_curve(predictive: Predictive, y: ArrayLike, levels: Sequence[float] | FloatArray) -> FloatArray:
    """Observed coverage of central intervals at several levels.

    Example:
        >>> p = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], [0.5, 0.5])
        >>> coverage_curve(p, [0.1, 1.0], [0.5, 0.9])
        array([0.5, 1. ])
    """
    return np.array([coverage(predictive, y, float(level)) for level in levels])


def calibration(
    predictions: Mapping[str, Predictive],
    y: ArrayLike,
    *,
    levels: Sequence[float] | FloatArray = DEFAULT_LEVELS,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the part of the targets that each model's intervals hold against the part that they promise.

    On the diagonal a model is honest, below it too sure of itself. The shaded region is where an honest model would
    lie 95 times in 100, given this many independent targets.

    Args:
        predictions: Predictions of the same targets, by the model's name.
        y: The targets that came true.
        levels: Probabilities of the central intervals.
        title: Of the panel.
        ax: Where to draw; None for a new figure.

    Returns:
        The panel; its figure is ``ax.figure``.

    Raises:
        DataError: If there are no predictions, or they do not match the targets.

    Example:
        >>> p = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], [0.5, 0.5])
        >>> calibration({"GP": p}, [0.1, 1.0]).get_ylabel()
        'observed coverage'
    """
    if not predictions:
        raise DataError("calibration needs at least one prediction: pass {name: predictive}.")
    if any(isinstance(p, ClassPredictive) for p in predictions.values()):
        raise DataError("calibration is of intervals, and these are classes: use plots.reliability_figure.")
    values = np.asarray(levels, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not bool(((values > 0) & (values < 1)).all()):
        raise OptionError("levels must be probabilities strictly between 0 and 1.")
    values = np.sort(values)
    ax = panel_of(ax, 4.4, 4.2)
    n = int(np.asarray(y).size)
    low, high = binom.ppf(0.025, n, values) / n, binom.ppf(0.975, n, values) / n
    ax.fill_between(values, low, high, color=PALE, linewidth=0, label=f"chance, n = {n}")
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (4, 2.5)))
    colors = color_cycle(predictions)
    for name, predictive in predictions.items():
        observed = coverage_curve(predictive, y, values)
        ax.plot(values, observed, color=colors[name], linewidth=1.6, marker="o", markersize=3, label=name)
    dress(ax, title=title, xlabel="nominal coverage", ylabel="observed coverage")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.02)
    ax.set_aspect("equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    for text, place, align in (("too cautious", (0.04, 0.93), "left"), ("too sure", (0.96, 0.05), "right")):
        ax.text(*place, text, transform=ax.transAxes, ha=align, fontsize=FONT_SIZE - 1, color=GREY, style="italic")
    add_legend(ax, loc="upper left", bbox_to_anchor=(0.0, 0.92))
    return ax
