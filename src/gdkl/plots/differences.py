"""A benchmark as a picture: how far methods are from a reference on each table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gdkl.numerics import DataError
from gdkl.plots.style import GREY, add_legend, color_cycle, dress, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def difference_figure(panels: Mapping[str, Mapping[str, Mapping[str, float]]], reference: str) -> Figure:
    """Draw a dot per method and table; dots to the right of the line are better than the reference.

    The axis is linear near zero and logarithmic beyond a typical difference, so that one table does not hide the others.

    Args:
        panels: By score, method and table: by how much the method is better.
        reference: Name of the method that is compared with.

    Example:
        >>> figure = difference_figure({"LL": {"GDKL": {"boston": 0.1, "energy": -0.2}}}, "BoTorch")
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['energy', 'boston']
    """
    first = next(iter(panels.values()), {})
    order: dict[str, float] = {}
    for found in first.values():
        for table, value in found.items():
            order.setdefault(table, value)
    tables = sorted(order, key=lambda table: order[table])
    if not tables:
        raise DataError("there is nothing to draw: no method has a table that the reference has.")
    colors = color_cycle(first)
    figure = new_figure(4.2 * len(panels) + 1.5, 1.4 + 0.24 * len(tables))
    for ax, (score, methods) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for method, found in methods.items():
            places = [tables.index(table) for table in found]
            ax.plot(list(found.values()), places, "o", markersize=5, alpha=0.85, color=colors[method], label=method)
        values = np.abs([value for found in methods.values() for value in found.values()])
        ax.set_xscale("symlog", linthresh=float(np.median(values)) or 1.0)
        ax.axvline(0.0, color=GREY, linewidth=1)
        ax.set_yticks(range(len(tables)), tables)
        dress(ax, title=f"{score}: better than {reference} by", xlabel="worse ← → better")
    add_legend(figure.axes[-1], loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
