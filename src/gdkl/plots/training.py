"""Training curves: the objective and its terms against the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gdkl.numerics import DataError, OptionError
from gdkl.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, VERMILION, add_legend, dress, panel_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

#: Columns of a history that are not terms of the objective.
_NOT_TERMS = ("step", "objective", "noise", "learning_rate", "scale")

#: The terms that the library's objectives have, in words.
_NAMES = {
    "objective": "objective",
    "ell": r"data: $-E_q\,\log p(y\mid f)$",
    "kl": r"guide: $\mathrm{KL}(q\,\|\,p)$",
    "data_fit": "data fit",
    "complexity": "complexity",
}

#: Falls of the learning rate that are marked at most.
_MOST_FALLS = 10

_TERM_COLORS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE)


def history(
    history: pd.DataFrame, *, terms: Sequence[str] | None = None, title: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the objective and its terms against the step.

    A guided step sees another random split each time, so its values jump; they are drawn pale, with a running median
    on top. Dotted lines mark where the learning rate falls.

    Args:
        history: An estimator's ``history_``.
        terms: Columns to draw; None for the objective and all its terms.
        title: Of the panel.
        ax: Where to draw; None for a new figure.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"step": [1.0, 2.0], "objective": [3.0, 2.5], "ell": [2.0, 1.7], "kl": [1.0, 0.8]})
        >>> history(frame).get_xlabel()
        'step'
    """
    if "step" not in history.columns or len(history) == 0:
        raise DataError("history needs at least one row and a column 'step': pass the history_ of a fitted estimator.")
    columns = [str(column) for column in history.columns]
    if terms is None:
        terms = [name for name in columns if name == "objective" or name not in _NOT_TERMS]
    unknown = [name for name in terms if name not in columns]
    if unknown:
        raise OptionError(f"terms {unknown} are not in the history: use some of {', '.join(columns)}.")
    ax = panel_of(ax, 6, 3.6)
    steps = history["step"].to_numpy(dtype=np.float64)
    window = max(1, round(0.03 * len(history)))
    colors = iter(_TERM_COLORS * (1 + len(terms)))
    for name in terms:
        color = INK if name == "objective" else next(colors)
        values = history[name].astype(float)
        smooth = values.rolling(window, center=True, min_periods=1).median()
        marker = "o" if len(history) == 1 else ""
        ax.plot(steps, values.to_numpy(), color=color, alpha=0.25, linewidth=0.7, marker=marker)
        label, width = _NAMES.get(name, name.replace("_", " ")), 2.0 if name == "objective" else 1.4
        ax.plot(steps, smooth.to_numpy(), color=color, linewidth=width, label=label)
    if "learning_rate" in columns:
        falls = np.flatnonzero(np.diff(history["learning_rate"].to_numpy(dtype=np.float64)))
        # A rate that falls at every step has no places to mark.
        for index in falls if len(falls) <= _MOST_FALLS else ():
            ax.axvline(float(steps[index + 1]), color=GREY, linewidth=0.8, linestyle=":", zorder=1)
    dress(ax, title=title, xlabel="step", ylabel="value per point")
    add_legend(ax)
    return ax


def learning_curve(
    rows: Sequence[int],
    scores: Sequence[float],
    errors: Sequence[float],
    *,
    ylabel: str = "log-likelihood per held-out row",
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a score of held-out rows against the number of training rows, with standard errors.

    Args:
        rows: Numbers of training rows.
        scores: Mean scores.
        errors: Their standard errors.
        ylabel: What the score is.
        title: Of the panel.
        ax: Where to draw; None for a new figure.

    Example:
        >>> learning_curve([50, 100], [-1.0, -0.5], [0.1, 0.1]).get_xlabel()
        'training rows'
    """
    if not len(rows) == len(scores) == len(errors) > 0:
        raise DataError("rows, scores and errors need one entry for each size, and a size at least.")
    ax = panel_of(ax, 4.2, 3.1)
    ax.errorbar(rows, scores, errors, color=BLUE, linewidth=1.6, marker="o", markersize=4, capsize=3)
    dress(ax, title=title, xlabel="training rows", ylabel=ylabel)
    ax.set_xscale("log")
    ax.set_xticks(list(rows), [str(count) for count in rows])
    ax.set_xticks([], minor=True)
    return ax
