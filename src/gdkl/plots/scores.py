"""Scores of an experiment: against the number of rows as lines, and method by method as dots, beside published ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from gdkl.numerics import DataError
from gdkl.plots.style import BLUE, DASHED, FONT_SIZE, GREY, INK, VERMILION, add_legend, color_cycle, dress, panel_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: How far from the median, in median distances from it, a score may lie to be inside the picture.
_FAR = 20.0

#: A mean and a spread, which may be NaN.
Score = tuple[float, float]


def score_curves(
    ours: Mapping[str, Mapping[float, Score]],
    published: Mapping[str, Mapping[float, Score]] | None = None,
    *,
    title: str | None = None,
    ylabel: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw scores against the number of training rows, on a logarithmic axis; published ones are dashed.

    Scores far from all others are left out of the picture, and a line under it names their methods.

    Args:
        ours: By method and number of rows, a mean and a spread.
        published: The same, of others.
        title: Of the panel.
        ylabel: What the score is.
        ax: Where to draw; None for a new figure.

    Example:
        >>> ax = score_curves({"GDKL": {50: (-2.2, 0.1), 100: (-2.0, 0.1)}, "DKL": {50: (-300.0, 9.0)}})
        >>> bool(ax.get_ylim()[0] > -10), ax.get_xlabel()
        (True, 'training rows (DKL is outside)')
    """
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter  # noqa: PLC0415  (slow to import)

    published = published or {}
    sizes = sorted({size for curves in (ours, published) for curve in curves.values() for size in curve})
    if not sizes:
        raise DataError("there is nothing to draw: pass a score for some number of rows.")
    ax = panel_of(ax, 4.2, 3.2)
    names = list(dict.fromkeys([*ours, *published]))
    colors = color_cycle(names)
    for curves, look in ((published, {"linestyle": DASHED, "alpha": 0.55}), (ours, {"marker": "o", "markersize": 4})):
        for name, curve in curves.items():
            x = sorted(curve)
            mean, spread = np.array([curve[size] for size in x]).T
            error: dict[str, Any] = {"yerr": np.nan_to_num(spread), "capsize": 2, "elinewidth": 0.9}
            label = name if curves is ours or name not in ours else None
            ax.errorbar(x, mean, color=colors[name], linewidth=1.5, label=label, **look, **error)  # pyright: ignore[reportArgumentType]
    low, high = limits(
        [score[0] for curves in (ours, published) for curve in curves.values() for score in curve.values()]
    )
    outside = [
        name
        for name in names
        if any(not low <= value <= high for curves in (ours, published) for value, _ in curves.get(name, {}).values())
    ]
    note = f" ({', '.join(outside)} {'is' if len(outside) == 1 else 'are'} outside)" if outside else ""
    dress(ax, title=title, xlabel=f"training rows{note}", ylabel=ylabel)
    ax.set_ylim(low, high)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator(sizes))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    add_legend(ax, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=4)
    return ax


def score_dots(
    scores: Mapping[str, Mapping[str, Score]],
    *,
    title: str | None = None,
    xlabel: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a line per method with a dot for each of its scores, such as those of training and of test rows.

    Scores far from all others are drawn at the edge, with their number.

    Args:
        scores: By method and kind, a mean and a spread. A kind has one look for all methods.
        title: Of the panel.
        xlabel: What the score is.
        ax: Where to draw; None for a new figure.

    Example:
        >>> ax = score_dots({"GDKL": {"test": (-2.3, 0.1), "train": (-1.9, 0.0)}, "DKL": {"test": (-380.0, 34.0)}})
        >>> [text.get_text() for text in ax.texts], bool(ax.get_xlim()[0] > -10)
        (['−380'], True)
    """
    if not any(scores.values()):
        raise DataError("there is nothing to draw: pass a score of some method.")
    names = list(scores)[::-1]
    kinds = list(dict.fromkeys(kind for found in scores.values() for kind in found))
    ax = panel_of(ax, 4.2, 1.1 + 0.32 * len(names))
    low, high = limits([mean for found in scores.values() for mean, _ in found.values()])
    looks = dict(zip(kinds, cycle(_LOOKS), strict=False))
    offsets = dict(zip(kinds, 0.15 * (np.arange(len(kinds)) - (len(kinds) - 1) / 2), strict=True))
    for row, name in enumerate(names):
        for kind, (mean, spread) in scores[name].items():
            place = row - offsets[kind]
            shown = float(np.clip(mean, low, high))
            ax.errorbar(shown, place, xerr=0 if shown != mean else np.nan_to_num(spread), **looks[kind])
            if shown != mean:
                where: Any = {"xytext": (7 if shown == low else -7, 0), "textcoords": "offset points", "va": "center"}
                value = f"{mean:.3g}".replace("-", "−")
                ax.annotate(
                    value, (shown, place), ha="left" if shown == low else "right", fontsize=FONT_SIZE - 2, **where
                )
    for kind in kinds:
        ax.errorbar([], [], label=kind, **looks[kind])
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(-0.6, len(names) - 0.4)
    margin = 0.04 * (high - low)
    ax.set_xlim(low - margin, high + margin)
    dress(ax, title=title, xlabel=xlabel)
    if len(kinds) > 1:
        add_legend(ax, loc="upper center", bbox_to_anchor=(0.5, -0.2 if xlabel is None else -0.35), ncols=len(kinds))
    return ax


_LOOKS: Sequence[Mapping[str, Any]] = (
    {"fmt": "o", "color": BLUE, "markersize": 5, "elinewidth": 1.2},
    {"fmt": "o", "color": VERMILION, "markersize": 5, "elinewidth": 1.2, "markerfacecolor": "white"},
    {"fmt": "D", "color": GREY, "markersize": 4, "elinewidth": 1.0},
    {"fmt": "D", "color": INK, "markersize": 4, "elinewidth": 1.0, "markerfacecolor": "white"},
)


def limits(values: Sequence[float]) -> tuple[float, float]:
    """Ends of an axis that holds all values but those far from the others.

    Example:
        >>> limits([-2.0, -2.5, -3.0, -380.0])
        (-3.1, -1.9)
    """
    known = np.asarray([value for value in values if np.isfinite(value)])
    if not len(known):
        return 0.0, 1.0
    centre = np.median(known)
    distances = np.abs(known - centre)
    near = known[distances <= _FAR * max(float(np.median(distances)), 1e-3 * abs(float(centre)), 1e-6)]
    low, high = float(near.min()), float(near.max())
    margin = 0.1 * (high - low) or 0.1 * abs(high) or 1.0
    return round(low - margin, 12), round(high + margin, 12)
