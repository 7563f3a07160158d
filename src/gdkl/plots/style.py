"""How every picture looks: one palette safe for colour-blind readers, one style for all axes.

Nothing here touches matplotlib's global state: figures are plain `Figure` objects, which need no display.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito.
BLUE: Final = "#0072B2"
VERMILION: Final = "#D55E00"
GREEN: Final = "#009E73"
PURPLE: Final = "#CC79A7"
ORANGE: Final = "#E69F00"
SKY: Final = "#56B4E9"

#: Text and the truth.
INK: Final = "#1F2933"
#: Observations, axes, what stands back.
GREY: Final = "#6B7680"
#: Grid lines and shaded regions.
PALE: Final = "#E9ECEF"

#: A method has the same colour in every picture.
METHOD_COLORS: Final = {"GDKL": BLUE, "DKL": VERMILION, "NNGP": GREEN, "GP": PURPLE, "NN": ORANGE}

#: All colours by name, for a page that has others for them in the dark.
PAPER_COLORS: Final = {
    "blue": BLUE,
    "vermilion": VERMILION,
    "green": GREEN,
    "purple": PURPLE,
    "orange": ORANGE,
    "sky": SKY,
    "ink": INK,
    "soft": GREY,
    "band": PALE,
    "card": "#FFFFFF",
}

_FURTHER: Final = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)

DASHED: Final = (0, (4, 2.5))
DPI: Final = 160
FONT_SIZE: Final = 9.5
TITLE_SIZE: Final = 10.5


def color_cycle(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name: a method's own, or the next of the palette that no name here has.

    Example:
        >>> color_cycle(["DKL", "mine"])
        {'DKL': '#D55E00', 'mine': '#0072B2'}
    """
    names = list(names)
    taken = {METHOD_COLORS.get(name) for name in names}
    free = cycle([color for color in _FURTHER if color not in taken] or _FURTHER)
    return {name: METHOD_COLORS.get(name) or next(free) for name in names}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches, which lays out its panels by itself.

    Example:
        >>> new_figure(4, 3).get_size_inches()
        array([4., 3.])
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import)

    return Figure(figsize=(width, height), dpi=DPI, layout="constrained", facecolor="white")


def panel_of(ax: Axes | None, width: float, height: float) -> Axes:
    """The panel passed, or the only one of a new figure."""
    return ax if ax is not None else new_figure(width, height).add_subplot()


def dress(ax: Axes, *, title: str | None = None, xlabel: str | None = None, ylabel: str | None = None) -> Axes:
    """Give a panel its labels and its quiet look: two spines, pale grid behind the data."""
    ax.set_facecolor("white")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(GREY)
        ax.spines[side].set_linewidth(0.8)
    ax.grid(color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(colors=GREY, labelcolor=INK, labelsize=FONT_SIZE - 1, width=0.8, length=3)
    if title is not None:
        ax.set_title(title, loc="left", fontsize=TITLE_SIZE, color=INK)
    if xlabel is not None:
        ax.set_xlabel(xlabel, fontsize=FONT_SIZE, color=INK)
    if ylabel is not None:
        ax.set_ylabel(ylabel, fontsize=FONT_SIZE, color=INK)
    return ax


def calibration_axes(ax: Axes, xlabel: str, ylabel: str, title: str | None = None, diagonal: bool = True) -> None:
    """Axes in percent, with the diagonal on which a model is honest."""
    from matplotlib.ticker import PercentFormatter  # noqa: PLC0415

    if diagonal:
        ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=DASHED, zorder=1.9)
    dress(ax, title=title, xlabel=xlabel, ylabel=ylabel)
    ax.set_xlim(0, 1)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))


def legend_above(ax: Axes) -> None:
    """A legend above the panel, where it hides nothing; it ends at the right, for labels on the left may be long."""
    add_legend(ax, loc="lower right", bbox_to_anchor=(1.02, 1.0), ncols=3, columnspacing=1.0, handletextpad=0.4)


def add_legend(ax: Axes, **options: Any) -> None:
    """A legend without a frame, if the panel has anything to name."""
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        ax.legend(handles, labels, frameon=False, fontsize=FONT_SIZE - 1, labelcolor=INK, **options)
