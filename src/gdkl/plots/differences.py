"""A benchmark as a picture: how far methods are from a reference on each table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gdkl.numerics import DataError
from gdkl.plots.style import GREY, add_legend, color_cycle, dress, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Colours repeat after six methods; shapes do not.
_MARKERS = "oooooossssss^^^^^^"


def difference_figure(panels: Mapping[str, Mapping[str, Mapping[str, float]]], reference: str) -> Figure:
    """Draw a dot per method and table, to the right of the line where the method is better than the reference.

    Differences beyond those of nine tenths of the dots are drawn at the edge: one table must not hide the others.

    Args:
        panels: By score, method and table: by how much the method is better.
        reference: Name of the method that is compared with.

    Example:
        >>> figure = difference_figure({"LL": {"GDKL": {"boston": 0.1, "energy": -0.2}}}, "BoTorch")
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['energy', 'boston']
    """
    first = next(iter(panels.values()), {})
    order = {table: value for found in reversed(list(first.values())) for table, value in found.items()}
    tables = sorted(order, key=lambda table: order[table])
    if not tables:
        raise DataError("there is nothing to draw: no method has a table that the reference has.")
    colors = color_cycle(first)
    figure = new_figure(4.2 * len(panels) + 1.5, 1.4 + 0.24 * len(tables))
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for ax, (score, methods) in zip(axes, panels.items(), strict=True):
        edge = float(np.quantile(np.abs([value for found in methods.values() for value in found.values()]), 0.9)) or 1.0
        for (method, found), marker in zip(methods.items(), _MARKERS, strict=False):
            places = [tables.index(table) for table in found]
            values = np.clip(list(found.values()), -edge, edge)
            ax.plot(values, places, marker, markersize=5, alpha=0.8, color=colors[method], label=method)
        ax.axvline(0.0, color=GREY, linewidth=1)
        ax.set_yticks(range(len(tables)), tables)
        dress(ax, title=f"{score}: better than {reference} by")
    add_legend(axes[-1], loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
