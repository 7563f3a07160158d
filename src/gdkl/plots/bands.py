"""Predictions along one axis: mean and bands, beside the data and the truth; several models side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from gdkl.numerics import DataError, OptionError
from gdkl.plots.style import BLUE, DASHED, GREY, INK, PALE, color_cycle, dress, new_figure
from gdkl.predictive import Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Opacity of the outermost band; the bands within lie on top of it and come out darker.
_BAND_ALPHA = 0.22


def predictive_band(
    ax: Axes,
    x: ArrayLike,
    predictive: Predictive,
    *,
    levels: Sequence[float] = (0.5, 0.9),
    observed: tuple[ArrayLike, ArrayLike] | None = None,
    truth: tuple[ArrayLike, ArrayLike] | None = None,
    gap: tuple[float, float] | None = None,
    color: str = BLUE,
    label: str = "mean",
    title: str | None = None,
    xlabel: str | None = "x",
    ylabel: str | None = "y",
) -> Axes:
    """Draw the mean of a prediction and central intervals around it.

    The intervals are those of ``predictive.interval``: of a new observation, noise included.

    Args:
        ax: Where to draw.
        x: Positions of the predictions, ``(n,)`` or ``(n, 1)``, in any order.
        predictive: Prediction of one output at these positions.
        levels: Probabilities of the bands.
        observed: Positions and values of the data, drawn as points.
        truth: Positions and values of the function behind the data, drawn as a dashed line.
        gap: A region without data, shaded.
        color: Of mean and bands.
        label: Name of the mean in the legend.
        title: Of the panel.
        xlabel: Of the horizontal axis.
        ylabel: Of the vertical axis.

    Example:
        >>> x = np.linspace(0, 1, 5)
        >>> p = Predictive.gaussian(mean=x, variance=np.ones(5), latent_variance=np.full(5, 0.5))
        >>> ax = predictive_band(new_figure(4, 3).add_subplot(), x, p, observed=([0.2], [0.4]))
        >>> [text.get_text() for text in ax.figure.axes[0].legend().get_texts()]
        ['90 % band', '50 % band', 'mean', 'data']
    """
    positions = np.asarray(x, dtype=np.float64).ravel()
    if predictive.mean.size != positions.size:
        found = f"x has {positions.size} positions and the prediction has shape {predictive.shape}"
        raise DataError(f"{found}: give one position per prediction of one output.")
    if not levels or not all(0 < level < 1 for level in levels):
        raise OptionError(f"levels={tuple(levels)!r} must be probabilities strictly between 0 and 1.")
    order = np.argsort(positions)
    if gap is not None:
        shade_gap(ax, gap)
    for depth, level in enumerate(sorted(levels, reverse=True), start=1):
        low, high = (bound.ravel()[order] for bound in predictive.interval(level))
        ax.fill_between(positions[order], low, high, color=color, alpha=_BAND_ALPHA, linewidth=0)
        # The legend shows a band as dark as it is in the picture, on top of the wider ones.
        shown = 1 - (1 - _BAND_ALPHA) ** depth
        ax.fill_between([], [], [], color=color, alpha=shown, linewidth=0, label=f"{100 * level:g} % band")
    ax.plot(positions[order], predictive.mean.ravel()[order], color=color, linewidth=1.8, label=label, zorder=3)
    if truth is not None:
        draw_truth(ax, *truth)
    if observed is not None:
        draw_points(ax, *observed, label="data")
    return dress(ax, title=title, xlabel=xlabel, ylabel=ylabel)


def shade_gap(ax: Axes, gap: tuple[float, float]) -> None:
    """Mark a region of the horizontal axis that has no data."""
    ax.axvspan(*gap, color=PALE, alpha=0.75, linewidth=0, zorder=0)


def draw_truth(ax: Axes, x: ArrayLike, y: ArrayLike) -> None:
    """The function behind the data, dashed."""
    positions = np.asarray(x, dtype=np.float64).ravel()
    order = np.argsort(positions)
    values = np.asarray(y, dtype=np.float64).ravel()[order]
    ax.plot(positions[order], values, color=INK, linewidth=1.2, linestyle=DASHED, label="truth", zorder=4)


def draw_points(ax: Axes, x: ArrayLike, y: ArrayLike, *, label: str, **look: Any) -> None:
    """Observations as small points, by default translucent."""
    look = {"color": GREY, "alpha": 0.65, "zorder": 2, "markersize": 2.6, "markeredgewidth": 0} | look
    ax.plot(np.asarray(x).ravel(), np.asarray(y).ravel(), linestyle="none", marker="o", label=label, **look)


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
        predictions: Predictions by model.
        observed: Positions and values of the training data.
        truth: Positions and values of the function behind it.
        gap: A region without data, shaded.
        notes: A few words for a model's title, such as a score.

    Example:
        >>> x = np.linspace(0, 1, 5)
        >>> p = Predictive.gaussian(x, np.ones(5), np.ones(5))
        >>> [ax.get_title(loc="left") for ax in bands_figure(x, {"GP": p, "DKL": p}, observed=(x, x)).axes]
        ['GP', 'DKL']
    """
    if not predictions:
        raise DataError("bands_figure needs at least one prediction: pass {name: predictive}.")
    columns = min(2, len(predictions))
    rows = -(-len(predictions) // columns)
    figure = new_figure(5.4 * columns, 0.45 + 2.75 * rows)
    panels = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel())
    colors = color_cycle(predictions)
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
    panels[0].set_xlim(float(np.min(x)), float(np.max(x)))
    _shared_legend(figure)
    return figure


def _shared_legend(figure: Figure) -> None:
    from matplotlib.artist import setp  # noqa: PLC0415  (slow to import)

    handles, labels = figure.axes[0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    for handle, original, label in zip(legend.legend_handles, handles, labels, strict=True):
        # It speaks for all panels, so it takes no model's colour.
        if handle is not None and label not in ("truth", "data"):
            setp(handle, color=GREY, alpha=original.get_alpha())
