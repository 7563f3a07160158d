"""Whether targets lie where predictions put them: at which quantile of its prediction each target is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from gdkl import metrics
from gdkl.numerics import OptionError
from gdkl.plots.style import BLUE, FONT_SIZE, GREY, PALE, calibration_axes, dress, legend_above, panel_of
from gdkl.predictive import Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Probabilities at which quantiles are compared.
_LEVELS = np.linspace(0.05, 0.95, 19)


def pit_histogram(
    predictive: Predictive, y: ArrayLike, *, bins: int = 10, title: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw a histogram of the quantiles at which targets lie (the probability integral transform).

    A model that is right has a flat one. Much at both ends: intervals are too narrow; a hill: too wide; more on the
    right: predictions are too low. The shaded region is where a bar lies 95 times in 100.

    Args:
        predictive: Predictions of one target.
        y: The targets that came true.
        bins: Number of bars.
        title: Of the panel.
        ax: Where to draw; None for a new figure.

    Example:
        >>> p = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], [0.5, 0.5])
        >>> [int(bar.get_height()) for bar in pit_histogram(p, [-9.0, 9.0], bins=2).patches[-2:]]
        [1, 1]
    """
    if bins < 1:
        raise OptionError(f"bins={bins!r} is not allowed: draw at least one bar.")
    pit = predictive.cdf(y)
    counts, edges = np.histogram(pit, bins, (0, 1))
    low, high = (len(pit) * end for end in metrics.coverage_band(len(pit), 1 / bins))
    ax = panel_of(ax, 4.2, 3.1)
    ax.axhspan(float(low), float(high), color=PALE, linewidth=0, label="chance")
    ax.axhline(len(pit) / bins, color=GREY, linewidth=1)
    ax.bar(edges[:-1], counts, 1 / bins, align="edge", color=BLUE, alpha=0.85, edgecolor="white", linewidth=0.6)
    dress(ax, title=title, xlabel="quantile of the prediction", ylabel="targets")
    ax.set_xlim(0, 1)
    legend_above(ax)
    return ax


def quantile_calibration(
    predictive: Predictive, y: ArrayLike, *, title: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the part of the targets below each predicted quantile against its probability, with the band of chance.

    Above the diagonal predictions are too high, below it too low; a curve that is flatter than the diagonal belongs to
    intervals that are too narrow.

    Args:
        predictive: Predictions of one target.
        y: The targets that came true.
        title: Of the panel.
        ax: Where to draw; None for a new figure.

    Example:
        >>> p = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], [0.5, 0.5])
        >>> quantile_calibration(p, [-1.0, 1.0]).get_ylabel()
        'targets below it'
    """
    pit = np.asarray(predictive.cdf(y))
    observed = np.array([(pit <= level).mean() for level in _LEVELS])
    low, high = metrics.coverage_band(len(pit), _LEVELS)
    ax = panel_of(ax, 4.2, 3.4)
    ax.fill_between(_LEVELS, low, high, color=PALE, linewidth=0, label="chance")
    ax.plot(_LEVELS, observed, color=BLUE, linewidth=1.6, marker="o", markersize=3)
    calibration_axes(ax, "predicted quantile", "targets below it", title)
    ax.set_ylim(0, 1)
    for text, place, align in (("predictions too high", (0.03, 0.93), "left"), ("too low", (0.97, 0.04), "right")):
        ax.text(*place, text, transform=ax.transAxes, ha=align, fontsize=FONT_SIZE - 1, color=GREY, style="italic")
    legend_above(ax)
    return ax
