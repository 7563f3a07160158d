"""Columns of a table: how much each of them matters to a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gdkl.numerics import DataError, OptionError
from gdkl.plots.style import BLUE, dress, panel_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike


def relevance(
    relevance: ArrayLike | pd.DataFrame, *, most: int = 20, title: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the relevances of columns as bars, the largest on top.

    Args:
        relevance: An estimator's ``relevance_``. Columns without names are drawn by their numbers, from 0 on.
        most: Columns that are drawn at most.
        title: Of the panel; None says how many columns are left out, if any.
        ax: Where to draw; None for a new figure.

    Example:
        >>> ax = relevance([0.1, 2.0, 0.7])
        >>> [label.get_text() for label in ax.get_yticklabels()]
        ['column 0', 'column 2', 'column 1']
    """
    if most < 1:
        raise OptionError(f"most={most!r} is not allowed: draw at least one column.")
    frame: Any = relevance
    names = frame.index if hasattr(frame, "iloc") else None
    values = np.asarray(relevance, dtype=np.float64).reshape(-1)
    if not len(values) or not np.isfinite(values).all() or (values < 0).any():
        raise DataError("relevances are finite numbers from 0 on: pass the relevance_ of a fitted estimator.")
    labels = [f"column {k}" for k in range(len(values))] if names is None else [str(name) for name in names]
    drawn = np.argsort(-values, kind="stable")[:most][::-1]
    ax = panel_of(ax, 5.5, 0.8 + 0.26 * len(drawn))
    ax.barh(range(len(drawn)), values[drawn], color=BLUE, height=0.65)
    ax.set_yticks(range(len(drawn)), [labels[k] for k in drawn])
    if title is None and len(drawn) < len(values):
        title = f"the {len(drawn)} most relevant of {len(values)} columns"
    dress(ax, title=title, xlabel="relevance: factor on the scaled column")
    ax.grid(visible=False, axis="y")
    return ax
