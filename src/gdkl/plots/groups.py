"""Calibration of parts of the rows: what was observed in each group beside what chance allows there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from gdkl.numerics import DataError
from gdkl.plots.style import BLUE, GREY, PALE, VERMILION, dress, legend_above, panel_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def group_bars(
    names: Sequence[str],
    observed: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    expected: float | None = None,
    xlabel: str = "observed coverage",
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a dot per group over the band that chance allows it; dots outside are of another colour and shape.

    Args:
        names: Of the groups, from the top down.
        observed: What was observed in each.
        low: Lower ends of the bands.
        high: Upper ends.
        expected: What all groups should have; a line.
        xlabel: What was observed, in words.
        title: Of the panel.
        ax: Where to draw; None for a new figure.

    Example:
        >>> ax = group_bars(["narrow", "wide"], [0.7, 0.9], [0.8, 0.8], [1.0, 1.0], expected=0.9)
        >>> [label.get_text() for label in ax.get_yticklabels()]
        ['wide', 'narrow']
    """
    found, bottom, top = (np.asarray(values, dtype=np.float64)[::-1] for values in (observed, low, high))
    if not len(names) == len(found) == len(bottom) == len(top) > 0:
        raise DataError("names, observed, low and high need one entry for each group, and a group at least.")
    places = np.arange(len(names))
    ax = panel_of(ax, 4.2, 0.9 + 0.26 * len(names))
    ax.barh(places, top - bottom, 0.7, bottom, color=PALE, linewidth=0, label="chance")
    if expected is not None:
        ax.axvline(expected, color=GREY, linewidth=1, zorder=1.5)
    inside = (bottom <= found) & (found <= top)
    ax.plot(found[inside], places[inside], "o", color=BLUE, markersize=5)
    ax.plot(found[~inside], places[~inside], "D", color=VERMILION, markersize=5, label="beyond chance")
    ax.set_yticks(places, list(names)[::-1])
    dress(ax, title=title, xlabel=xlabel)
    ax.grid(visible=False, axis="y")
    legend_above(ax)
    return ax
