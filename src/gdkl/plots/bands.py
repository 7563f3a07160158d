"""A prediction along one axis: mean and bands, beside the data and the truth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from gdkl.numerics import DataError, OptionError
from gdkl.plots.style import BLUE, GREY, INK, PALE, dress
from gdkl.predictive import FloatArray, Predictive

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

    Returns:
        The panel that was drawn on.

    Raises:
        DataError: If positions and predictions differ in number, or there are several outputs.

    Example:
        >>> import numpy as np
        >>> from gdkl.plots import new_figure
        >>> x = np.linspace(0, 1, 5)
        >>> p = Predictive.gaussian(mean=x, variance=np.ones(5), latent_variance=np.full(5, 0.5))
        >>> ax = predictive_band(new_figure(4, 3).add_subplot(), x, p, observed=([0.2], [0.4]))
        >>> [text.get_text() for text in ax.figure.axes[0].legend().get_texts()]
        ['90 % band', '50 % band', 'mean', 'data']
    """
    positions = np.asarray(x, dtype=np.float64).ravel()
    if predictive.mean.size != positions.size:
        raise DataError(
            f"x has {positions.size} positions and the prediction has shape {predictive.shape}: give one position a "
            "prediction of one output."
        )
    if not levels or not all(0 < level < 1 for level in levels):
        raise OptionError(f"levels={tuple(levels)!r} must be probabilities strictly between 0 and 1.")
    order = np.argsort(positions)
    if gap is not None:
        shade_gap(ax, gap)
    for depth, level in enumerate(sorted(levels, reverse=True), start=1):
        low, high = (_along(bound, order) for bound in predictive.interval(level))
        ax.fill_between(positions[order], low, high, color=color, alpha=_BAND_ALPHA, linewidth=0)
        # The legend shows a band as dark as it is in the picture, on top of the wider ones.
        shown = 1 - (1 - _BAND_ALPHA) ** depth
        ax.fill_between([], [], [], color=color, alpha=shown, linewidth=0, label=f"{100 * level:g} % band")
    ax.plot(positions[order], _along(predictive.mean, order), color=color, linewidth=1.8, label=label, zorder=3)
    if truth is not None:
        draw_truth(ax, *truth)
    if observed is not None:
        draw_points(ax, *observed, label="data")
    return dress(ax, title=title, xlabel=xlabel, ylabel=ylabel)


def _along(values: FloatArray, order: NDArray[np.intp]) -> FloatArray:
    return values.ravel()[order]


def shade_gap(ax: Axes, gap: tuple[float, float]) -> None:
    """Mark a region of the horizontal axis that has no data."""
    ax.axvspan(*gap, color=PALE, alpha=0.75, linewidth=0, zorder=0)


def draw_truth(ax: Axes, x: ArrayLike, y: ArrayLike) -> None:
    """The function behind the data, dashed."""
    positions = np.asarray(x, dtype=np.float64).ravel()
    order = np.argsort(positions)
    values = np.asarray(y, dtype=np.float64).ravel()[order]
    ax.plot(positions[order], values, color=INK, linewidth=1.2, linestyle=(0, (4, 2.5)), label="truth", zorder=4)


def draw_points(ax: Axes, x: ArrayLike, y: ArrayLike, *, label: str) -> None:
    """Observations as small points that let the bands shine through."""
    ax.plot(
        np.asarray(x).ravel(),
        np.asarray(y).ravel(),
        linestyle="none",
        marker="o",
        markersize=2.6,
        markeredgewidth=0,
        color=GREY,
        alpha=0.65,
        label=label,
        zorder=2,
    )
