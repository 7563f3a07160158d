"""Calibration: do intervals hold as many observations as they promise, are classes given 80 % right in 80 %?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from gdkl import metrics
from gdkl.numerics import DataError, OptionError
from gdkl.plots import style
from gdkl.plots.style import BLUE, FONT_SIZE, GREY, INK, PALE, add_legend, calibration_axes, color_cycle, panel_of
from gdkl.predictive import ClassPredictive, FloatArray, Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Levels at which coverage is counted by default.
DEFAULT_LEVELS: FloatArray = np.linspace(0.05, 0.95, 19)


def coverage_curve(predictive: Predictive, y: ArrayLike, levels: Sequence[float] | FloatArray) -> FloatArray:
    """Observed coverage of central intervals at several levels.

    Example:
        >>> p = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], [0.5, 0.5])
        >>> coverage_curve(p, [0.1, 1.0], [0.5, 0.9])
        array([0.5, 1. ])
    """
    return np.array([metrics.coverage(predictive, y, float(level)) for level in levels])


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

    Example:
        >>> p = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], [0.5, 0.5])
        >>> calibration({"GP": p}, [0.1, 1.0]).get_ylabel()
        'observed coverage'
    """
    from scipy.stats import binom  # noqa: PLC0415  (slow to import)

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
    colors = color_cycle(predictions)
    for name, predictive in predictions.items():
        observed = coverage_curve(predictive, y, values)
        ax.plot(values, observed, color=colors[name], linewidth=1.6, marker="o", markersize=3, label=name)
    calibration_axes(ax, "nominal coverage", "observed coverage", title)
    ax.set_ylim(0, 1.02)
    ax.set_aspect("equal")
    for text, place, align in (("too cautious", (0.04, 0.93), "left"), ("too sure", (0.96, 0.05), "right")):
        ax.text(*place, text, transform=ax.transAxes, ha=align, fontsize=FONT_SIZE - 1, color=GREY, style="italic")
    add_legend(ax, loc="upper left", bbox_to_anchor=(0.0, 0.92))
    return ax


def reliability_diagram(
    probs: metrics.Probabilities,
    labels: ArrayLike,
    *,
    n_bins: int = 15,
    color: str = BLUE,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw accuracy against confidence, bin by bin, with the distance between them.

    A bar that ends below the diagonal belongs to predictions that are too sure of themselves. The panel names the
    expected and maximum calibration errors and the Brier score.

    Args:
        probs: What ``predict_distribution`` returned, or class probabilities ``(n, classes)``.
        labels: The labels that came true; the columns of bare probabilities.
        n_bins: Bins of confidence.
        color: Of the bars.
        title: Of the panel.
        ax: Where to draw; None for a new figure, which is ``ax.figure`` of the panel returned.

    Example:
        >>> reliability_diagram([[0.9, 0.1], [0.6, 0.4]], [0, 1]).get_ylabel()
        'accuracy'
    """
    ax = reliability_bars(metrics.calibration_bins(probs, labels, n_bins), color=color, title=title, ax=ax)
    scores = metrics.class_summary(probs, labels, n_bins)
    text = f"ECE {scores['ece']:.3f}\nMCE {scores['mce']:.3f}\nBrier {scores['brier']:.3f}"
    ax.text(0.05, 0.95, text, transform=ax.transAxes, va="top", fontsize=FONT_SIZE - 1, color=INK)
    return ax


def reliability_bars(
    bins: metrics.CalibrationBins, *, color: str = BLUE, title: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw a reliability diagram of predictions that are counted already, as `gdkl.metrics.calibration_bins` does.

    Example:
        >>> from gdkl.metrics import calibration_bins
        >>> reliability_bars(calibration_bins([[0.9, 0.1], [0.6, 0.4]], [0, 1])).get_xlabel()
        'confidence'
    """
    ax = panel_of(ax, 3.6, 3.6)
    filled = bins.counts > 0
    left, width = bins.edges[:-1][filled], 1.0 / len(bins.counts)
    reached, promised = bins.accuracy[filled], bins.confidence[filled]
    ax.bar(left, reached, width, align="edge", color=color, edgecolor="white", linewidth=0.6, label="accuracy")
    hatched: dict[str, Any] = {"facecolor": "none", "edgecolor": INK, "linewidth": 0.6, "hatch": "////", "alpha": 0.55}
    ax.bar(left, promised - reached, width, reached, align="edge", label="gap to confidence", **hatched)
    calibration_axes(ax, "confidence", "accuracy", title)
    ax.set_ylim(0, 1)
    return ax


def confidence_histogram(
    probs: metrics.Probabilities,
    labels: ArrayLike,
    *,
    n_bins: int = 15,
    color: str = BLUE,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how many predictions have which confidence, with the mean confidence and the accuracy as lines.

    Where the two lines meet, the classifier is honest on average. The arguments are those of `reliability_diagram`.

    Example:
        >>> confidence_histogram([[0.9, 0.1], [0.6, 0.4]], [0, 1]).get_ylabel()
        'share of predictions'
    """
    bins = metrics.calibration_bins(probs, labels, n_bins)
    ax = panel_of(ax, 3.6, 2.2)
    shares = bins.counts / bins.counts.sum()
    ax.bar(bins.edges[:-1], shares, 1.0 / n_bins, align="edge", color=color, alpha=0.45, edgecolor="white")
    confidence = float(np.nansum(shares * bins.confidence))
    ax.axvline(metrics.accuracy(probs, labels), color=INK, linewidth=1.3, label="accuracy")
    ax.axvline(confidence, color=INK, linewidth=1.3, linestyle=(0, (2, 1.5)), label="mean confidence")
    calibration_axes(ax, "confidence", "share of predictions", title, diagonal=False)
    return ax


def reliability_figure(
    predictions: Mapping[str, metrics.Probabilities], labels: ArrayLike, *, n_bins: int = 15
) -> Figure:
    """Reliability diagrams over confidence histograms, one column per model, as in the paper's figure.

    Args:
        predictions: By name, what ``predict_distribution`` returned for the same rows, or class probabilities.
        labels: The labels that came true; the columns of bare probabilities.
        n_bins: Bins of confidence.

    Example:
        >>> p = [[0.9, 0.1], [0.6, 0.4]]
        >>> [ax.get_title(loc="left") for ax in reliability_figure({"GDKL": p, "NN": p}, [0, 1]).axes]
        ['GDKL', 'NN', '', '']
    """
    if not predictions:
        raise DataError("reliability_figure needs at least one model: pass {name: probabilities}.")
    count = len(predictions)
    figure = style.new_figure(0.5 + 2.9 * count, 4.6)
    grid = figure.subplots(2, count, sharex=True, sharey="row", squeeze=False, height_ratios=(2.2, 1))
    colors = color_cycle(predictions)
    for column, (name, probs) in enumerate(predictions.items()):
        above, below = grid[:, column]
        reliability_diagram(probs, labels, n_bins=n_bins, color=colors[name], title=name, ax=above)
        confidence_histogram(probs, labels, n_bins=n_bins, color=colors[name], ax=below)
        above.set_xlabel("")
        if column > 0:
            above.set_ylabel("")
            below.set_ylabel("")
    handles, names = grid[1, 0].get_legend_handles_labels()
    look: dict[str, Any] = {"frameon": False, "fontsize": FONT_SIZE - 1, "labelcolor": INK}
    figure.legend(handles, names, loc="outside lower center", ncols=2, **look)
    return figure
