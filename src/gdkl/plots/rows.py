"""Pictures of single rows: their intervals, which of them to refuse, and which are far from the training data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from gdkl.numerics import DataError, OptionError
from gdkl.plots.style import BLUE, DASHED, GREEN, GREY, INK, VERMILION, dress, legend_above, panel_of
from gdkl.predictive import FloatArray, Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def sorted_intervals(
    predictive: Predictive,
    y: ArrayLike,
    *,
    level: float = 0.9,
    most: int = 100,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw each row's interval and target, rows in the order of their median prediction.

    Args:
        predictive: Predictions of one target.
        y: The targets that came true.
        level: Of the intervals.
        most: Rows that are drawn at most, evenly spaced in that order.
        title: Of the panel.
        ax: Where to draw; None for a new figure.

    Example:
        >>> p = Predictive.gaussian([1.0, 0.0], [1.0, 1.0], [0.5, 0.5])
        >>> sorted_intervals(p, [1.0, 9.0]).get_legend_handles_labels()[1]
        ['90 % interval', 'target inside', 'target outside']
    """
    if most < 1:
        raise OptionError(f"most={most!r} is not allowed: draw at least one row.")
    low, middle, high = predictive.quantile([(1 - level) / 2, 0.5, (1 + level) / 2])
    targets = np.asarray(y, dtype=np.float64)
    order = np.argsort(middle, kind="stable")
    order = order[np.unique(np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(int))]
    low, middle, high, targets = (values[order] for values in (low, middle, high, targets))
    place, inside = np.arange(len(order)), (low <= targets) & (targets <= high)
    ax = panel_of(ax, 4.2, 3.2)
    ax.vlines(place, low, high, color=BLUE, alpha=0.4, linewidth=1.6, label=f"{100 * level:g} % interval")
    ax.plot(place[inside], targets[inside], "o", color=INK, markersize=2.6, label="target inside")
    ax.plot(place[~inside], targets[~inside], "D", color=VERMILION, markersize=3.6, label="target outside")
    dress(ax, title=title, xlabel="rows, by their median prediction", ylabel="target")
    # A few wide intervals must not hide all others.
    reach = np.concatenate([np.quantile(np.concatenate([low, high]), [0.02, 0.98]), targets])
    margin = 0.06 * float(np.ptp(reach))
    ax.set_ylim(float(reach.min()) - margin, float(reach.max()) + margin)
    legend_above(ax)
    return ax


def rejection_curve(
    uncertainty: ArrayLike,
    loss: ArrayLike,
    *,
    root: bool = False,
    ylabel: str = "loss of the rows kept",
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the loss of the rows that are kept when the most uncertain ones are refused.

    A useful uncertainty lies well below the line of refusing at random, and near that of knowing the losses.

    Args:
        uncertainty: Of each row, such as the standard deviation or the entropy of its prediction.
        loss: Of each row, such as the squared error, or whether the class was wrong.
        root: Whether the root of the mean loss is drawn, as of squared errors.
        ylabel: What the loss is, in words.
        title: Of the panel.
        ax: Where to draw; None for a new figure.

    Example:
        >>> ax = rejection_curve([0.1, 0.5, 0.9], [0.0, 0.0, 1.0])
        >>> [line.get_label() for line in ax.get_lines()]
        ['at random', 'by uncertainty', 'if losses were known']
    """
    doubt, cost = np.asarray(uncertainty, dtype=np.float64), np.asarray(loss, dtype=np.float64)
    if doubt.shape != cost.shape or doubt.ndim != 1 or not len(doubt):
        raise DataError("uncertainty and loss need one number per row, and a row at least.")
    ax = panel_of(ax, 4.2, 3.1)
    change = np.sqrt if root else np.asarray
    # The mean of a handful of rows says nothing.
    refused = np.arange(max(1, len(doubt) - max(5, len(doubt) // 20) + 1))

    def kept(order: FloatArray) -> FloatArray:
        """Mean loss of the rows kept, after 0, 1, ... are refused."""
        means = np.cumsum(cost[np.argsort(order, kind="stable")]) / np.arange(1, len(cost) + 1)
        return change(means[::-1][refused])

    share = refused / len(doubt)
    ax.axhline(float(change(cost.mean())), color=GREY, linewidth=1.2, linestyle=DASHED, label="at random")
    ax.plot(share, kept(doubt), color=BLUE, linewidth=1.8, label="by uncertainty")
    ax.plot(share, kept(cost), color=GREEN, linewidth=1.2, linestyle=":", label="if losses were known")
    dress(ax, title=title, xlabel="rows refused", ylabel=ylabel)
    _percent(ax)
    ax.set_ylim(bottom=0)
    legend_above(ax)
    return ax


def function_share(predictive: Predictive, *, title: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw how much of each prediction's variance is about the function, which more rows would reduce; noise stays.

    Args:
        predictive: Predictions of one target.
        title: Of the panel.
        ax: Where to draw; None for a new figure.

    Example:
        >>> function_share(Predictive.gaussian([0.0], [1.0], [0.25])).get_ylabel()
        'rows'
    """
    share = predictive.latent_variance / predictive.variance
    ax = panel_of(ax, 4.2, 3.1)
    ax.hist(np.clip(share, 0, 1), bins=20, range=(0, 1), color=BLUE, alpha=0.85, edgecolor="white", linewidth=0.6)
    middle = float(np.median(share))
    ax.axvline(middle, color=INK, linewidth=1.3, linestyle=DASHED, label=f"median {100 * middle:.0f} %")
    dress(ax, title=title, xlabel="part of the variance that is not noise", ylabel="rows")
    _percent(ax)
    ax.set_xlim(0, 1)
    legend_above(ax)
    return ax


def far_rows(
    distance: ArrayLike,
    deviation: ArrayLike,
    wrong: ArrayLike,
    *,
    usual: float,
    names: tuple[str, str] = ("target inside", "target outside"),
    xlabel: str = "distance to the nearest training row",
    ylabel: str = "predicted standard deviation",
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how uncertain predictions are against how far rows are from the training data.

    Args:
        distance: Of each row.
        deviation: How uncertain its prediction is.
        wrong: Which targets came out otherwise.
        usual: The distance that few training rows have; a line.
        names: Of rows that came out as predicted, and of those that did not.
        xlabel: What the distance is.
        ylabel: What the uncertainty is.
        title: Of the panel.
        ax: Where to draw; None for a new figure.

    Example:
        >>> far_rows([0.1, 2.0], [0.3, 0.9], [False, True], usual=1.0).get_xlabel()
        'distance to the nearest training row'
    """
    x, y, bad = np.asarray(distance), np.asarray(deviation), np.asarray(wrong, dtype=bool)
    if not x.shape == y.shape == bad.shape:
        raise DataError("distance, deviation and wrong need one entry per row.")
    ax = panel_of(ax, 4.2, 3.1)
    ax.axvline(usual, color=GREY, linewidth=1.2, linestyle=DASHED, label="95 % of fit")
    ax.plot(x[~bad], y[~bad], "o", color=BLUE, alpha=0.6, markersize=3.4, markeredgewidth=0, label=names[0])
    ax.plot(x[bad], y[bad], "D", color=VERMILION, markersize=3.8, markeredgewidth=0, label=names[1])
    dress(ax, title=title, xlabel=xlabel, ylabel=ylabel)
    ax.set_ylim(bottom=0)
    legend_above(ax)
    return ax


def _percent(ax: Axes) -> None:
    from matplotlib.ticker import PercentFormatter  # noqa: PLC0415  (slow to import)

    ax.xaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
