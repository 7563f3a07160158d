"""Several models side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.artist import setp
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from gdkl.numerics import DataError
from gdkl.plots.bands import predictive_band
from gdkl.plots.style import GREY, color_cycle, new_figure
from gdkl.predictive import Predictive


def bands_figure(
    x: ArrayLike,
    predictions: Mapping[str, Predictive],
    *,
    observed: tuple[ArrayLike, ArrayLike],
    truth: tuple[ArrayLike, ArrayLike] | None = None,
    gap: tuple[float, float] | None = None,
    notes: Mapping[str, str] | None = None,
) -> Figure:
    """Predictive bands of several models in panels with common axes, two in a row.

    Args:
        x: Positions of the predictions.
        predictions: One prediction a model, by its name.
        observed: Positions and values of the training data.
        truth: Positions and values of the function behind it.
        gap: A region without data, shaded.
        notes: A few words for a model's title, such as a score.

    Raises:
        DataError: If there is nothing to draw.

    Example:
        >>> x = np.linspace(0, 1, 5)
        >>> p = Predictive.gaussian(x, np.ones(5), np.ones(5))
        >>> [ax.get_title(loc="left") for ax in bands_figure(x, {"GP": p, "DKL": p}, observed=(x, x)).axes]
        ['GP', 'DKL']
    """
    if not predictions:
        raise DataError("bands_figure needs at least one prediction: pass {name: predictive}.")
    columns = min(2, len(predictions))
    rows = math.ceil(len(predictions) / columns)
    figure = new_figure(5.4 * columns, 0.45 + 2.75 * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    colors = color_cycle(predictions)
    panels = list(grid.ravel())
    for index, (name, predictive) in enumerate(predictions.items()):
        note = "" if notes is None else notes.get(name, "")
        predictive_band(
            panels[index],
            x,
            predictive,
            observed=observed,
            truth=truth,
            gap=gap,
            color=colors[name],
            title=f"{name}   {note}".rstrip(),
            xlabel="x" if index >= len(predictions) - columns else None,
            ylabel="y" if index % columns == 0 else None,
        )
    for panel in panels[len(predictions) :]:
        panel.remove()
    values = np.asarray(observed[1], dtype=np.float64)
    margin = 0.3 * float(np.ptp(values))
    # One model's wild band must not squeeze the others' panels.
    panels[0].set_ylim(float(values.min()) - margin, float(values.max()) + margin)
    positions = np.asarray(x, dtype=np.float64)
    panels[0].set_xlim(float(positions.min()), float(positions.max()))
    _shared_legend(figure)
    return figure


def _shared_legend(figure: Figure) -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    for handle, original, label in zip(legend.legend_handles, handles, labels, strict=True):
        # It speaks for all panels, so it takes no model's colour.
        if handle is not None and label not in ("truth", "data"):
            setp(handle, color=GREY, alpha=original.get_alpha())
