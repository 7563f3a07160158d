"""Held-out rows: how many a fit can spare, which, and what setting they prefer.

A network overfits the rows that it is trained on, and its noise falls with the training error: only rows that it has
not learned tell how wrong it is on new ones. Many rows can spare some for good. Exact inference is for few, which all
are held out from one member of an ensemble (`gdkl.calibration.stack`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gdkl.numerics import DataError

#: Part of the rows that are held out, with the fewest and the most.
_PART, _FEWEST, MOST_HELD_OUT = 0.05, 200, 2000
#: The fewest are no more than this part of the rows.
_LARGEST_PART = 0.2
#: Fewer training rows than this spare none.
_FEWEST_ROWS = 50
#: Part of each class that is held out where a model is fitted twice.
_FIFTH = 0.2
#: How much more probable held-out labels must be for anything but the usual setting, in nats.
_PREFERENCE = 2.0

SettingT = TypeVar("SettingT")


class Holdout(NamedTuple):
    """Positions of held-out rows and of those that are trained on, both ascending."""

    held_out: Tensor
    used: Tensor


def held_out_count(n: int) -> int:
    """How many of n rows are held out for good: 5 %, at least 200 or a fifth, at most 2000, none of fewer than 50.

    Example:
        >>> [held_out_count(n) for n in (40, 500, 1000, 10_000, 600_000)]
        [0, 100, 200, 500, 2000]
    """
    if n < _FEWEST_ROWS:
        return 0
    return min(MOST_HELD_OUT, max(min(_FEWEST, round(_LARGEST_PART * n)), round(_PART * n)))


def hold_out_rows(n: int, count: int, seed: int, labels: Tensor | None = None) -> Holdout:
    """A random choice of about ``count`` rows; given labels ``(n,)``, no class is left without a row to learn from.

    Example:
        >>> held_out, used = hold_out_rows(6, 3, seed=0, labels=torch.tensor([0, 0, 0, 0, 0, 1]))
        >>> len(held_out) + len(used), 5 in used
        (6, True)
    """
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    held_out, used = order[:count], order[count:]
    if labels is not None:
        labels = labels.cpu()
        learned = torch.isin(labels[held_out], labels[used])
        held_out, used = held_out[learned], torch.cat([used, held_out[~learned]])
    return Holdout(held_out.sort().values, used.sort().values)


def hold_out_stratified(labels: NDArray[np.int64], seed: int) -> Holdout:
    """A fifth of each class, at least one row; a class with a single row keeps it.

    Raises:
        DataError: If no class has two rows.
    """
    generator = np.random.default_rng(seed)
    chosen: list[int] = []
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        if len(rows) > 1:
            chosen.extend(rows[: max(1, round(_FIFTH * len(rows)))].tolist())
    if not chosen:
        raise DataError("held-out rows need a class with at least two rows: give more rows, or calibrate=False.")
    used = np.setdiff1d(np.arange(len(labels)), chosen)
    return Holdout(torch.as_tensor(np.sort(chosen)), torch.as_tensor(used))


def select(scores: Mapping[SettingT, float], usual: SettingT) -> SettingT:
    """The setting with the best log-likelihood of all held-out rows, if that clearly beats the usual one's.

    Example:
        >>> select({"usual": -10.0, "other": -9.0}, "usual"), select({"usual": -10.0, "other": -5.0}, "usual")
        ('usual', 'other')
    """
    best = max(scores, key=scores.__getitem__)
    return best if scores[best] > scores[usual] + _PREFERENCE else usual
