"""Reliability diagrams of classifiers: is a class that is given 80 % right eight times in ten?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import ArrayLike

from gdkl import metrics
from gdkl.numerics import DataError
from gdkl.plots.style import BLUE, FONT_SIZE, GREY, INK, color_cycle, dress, new_figure, panel_of

_PERCENT = PercentFormatter(xmax=1, decimals=0)
_PANEL_WIDTH = 2.9


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
        ax: Where to draw; None for a new figure.

    Returns:
        The panel; its figure is ``ax.figure``.

    Raises:
        DataError: If probabilities and labels do not fit.

    Example:
        >>> reliability_diagram([[0.9, 0.1], [0.6, 0.4]], [0, 1]).get_ylabel()
        'accuracy'
    """
    bins = metrics.calibration_bins(probs, labels, n_bins)
    ax = panel_of(ax, 3.6, 3.6)
    filled = bins.counts > 0
    left, width = bins.edges[:-1][filled], 1.0 / n_bins
    reached, promised = bins.accuracy[filled], bins.confidence[filled]
    ax.bar(left, reached, width, align="edge", color=color, edgecolor="white", linewidth=0.6, label="accuracy")
    ax.bar(
        left,
        promised - reached,
        width,
        bottom=reached,
        align="edge",
        facecolor="none",
        edgecolor=INK,
        linewidth=0.6,
        hatch="////",
        alpha=0.55,
        label="gap to confidence",
    )
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (4, 2.5)))
    dress(ax, title=title, xlabel="confidence", ylabel="accuracy")
    _unit_axes(ax)
    ax.set_ylim(0, 1)
    scores = metrics.class_summary(probs, labels, n_bins)
    ax.text(
        0.05,
        0.95,
        f"ECE {scores['ece']:.3f}\nMCE {scores['mce']:.3f}\nBrier {scores['brier']:.3f}",
        transform=ax.transAxes,
        va="top",
        fontsize=FONT_SIZE - 1,
        color=INK,
    )
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

    Where the two lines meet, the classifier is honest on average.

    Args:
        probs: What ``predict_distribution`` returned, or class probabilities ``(n, classes)``.
        labels: The labels that came true; the columns of bare probabilities.
        n_bins: Bins of confidence.
        color: Of the bars.
        title: Of the panel.
        ax: Where to draw; None for a new figure.

    Returns:
        The panel; its figure is ``ax.figure``.

    Raises:
        DataError: If probabilities and labels do not fit.

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
    dress(ax, title=title, xlabel="confidence", ylabel="share of predictions")
    _unit_axes(ax)
    ax.yaxis.set_major_formatter(_PERCENT)
    return ax


def reliability_figure(
    predictions: Mapping[str, metrics.Probabilities], labels: ArrayLike, *, n_bins: int = 15
) -> Figure:
    """Reliability diagrams over confidence histograms, one column a model, as in the paper's figure.

    Args:
        predictions: What each model's ``predict_distribution`` returned for the same rows, or class probabilities, by
            name.
        labels: The labels that came true; the columns of bare probabilities.
        n_bins: Bins of confidence.

    Raises:
        DataError: If there is nothing to draw, or probabilities and labels do not fit.

    Example:
        >>> p = [[0.9, 0.1], [0.6, 0.4]]
        >>> [ax.get_title(loc="left") for ax in reliability_figure({"GDKL": p, "NN": p}, [0, 1]).axes]
        ['GDKL', 'NN', '', '']
    """
    if not predictions:
        raise DataError("reliability_figure needs at least one model: pass {name: probabilities}.")
    count = len(predictions)
    figure = new_figure(0.5 + _PANEL_WIDTH * count, 4.6)
    grid = figure.subplots(2, count, sharex=True, sharey="row", squeeze=False, height_ratios=(2.2, 1))
    colors = color_cycle(predictions)
    for column, (name, probs) in enumerate(predictions.items()):
        above, below = grid[0, column], grid[1, column]
        reliability_diagram(probs, labels, n_bins=n_bins, color=colors[name], title=name, ax=above)
        confidence_histogram(probs, labels, n_bins=n_bins, color=colors[name], ax=below)
        above.set_xlabel("")
        if column > 0:
            above.set_ylabel("")
            below.set_ylabel("")
    handles, names = grid[1, 0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside lower center", ncols=2, frameon=False, fontsize=FONT_SIZE - 1, labelcolor=INK
    )
    return figure


def _unit_axes(ax: Axes) -> None:
    ax.set_xlim(0, 1)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(_PERCENT)
