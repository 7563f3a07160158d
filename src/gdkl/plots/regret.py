"""How near an optimisation has come to the minimum, by evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gdkl.numerics import DataError
from gdkl.plots.style import add_legend, color_cycle, dress, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Smaller regrets are drawn as this.
_SMALLEST = 1e-6
#: Panels beside each other.
_COLUMNS = 3


def regret_figure(panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], first: Mapping[str, int]) -> Figure:
    """Draw the geometric mean of simple regrets over runs, with a standard error on either side: a panel per problem.

    Args:
        panels: By problem and method, for each run the regret after each evaluation; runs of one method are of one
            length.
        first: By problem, how many evaluations the first regret is after.

    Example:
        >>> figure = regret_figure({"branin": {"GDKL": [[1.0, 0.1], [0.5, 0.01]]}}, {"branin": 5})
        >>> figure.axes[0].get_yscale()
        'log'
    """
    if not panels:
        raise DataError("there is nothing to draw: no run has ended.")
    methods = list(dict.fromkeys(method for runs in panels.values() for method in runs))
    colors, columns = color_cycle(methods), min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(3.4 * columns + 1.2, 2.8 * rows)
    axes = figure.subplots(rows, columns, squeeze=False).flat
    for (problem, runs), ax in zip(panels.items(), axes, strict=False):
        for method, regrets in runs.items():
            logs = np.log10(np.maximum(np.asarray(regrets, dtype=np.float64), _SMALLEST))
            mean = logs.mean(axis=0)
            error = logs.std(axis=0, ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else np.zeros_like(mean)
            places = first[problem] + np.arange(len(mean))
            ax.plot(places, 10**mean, color=colors[method], linewidth=1.5, label=method)
            ax.fill_between(places, 10 ** (mean - error), 10 ** (mean + error), color=colors[method], alpha=0.15, lw=0)
        ax.set_yscale("log")
        dress(ax, title=problem, xlabel="evaluations", ylabel="simple regret")
    for ax in list(axes):
        ax.set_visible(False)
    add_legend(figure.axes[min(columns, len(panels)) - 1], loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
