"""Splits into training and test rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gdkl.numerics import OptionError


def published_split(n: int, seed: int, train_fraction: float = 0.9) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The split that the published experiments use: indices of the training rows and of the test rows.

    The rows are shuffled as ``np.random.seed(seed)`` and ``np.random.shuffle`` would, without NumPy's global generator,
    and the first ``int(train_fraction * n)`` of them are for training.

    Args:
        n: Number of rows.
        seed: Which split; the published ones are 0 to 9.
        train_fraction: Part of the rows that is for training.

    Example:
        >>> published_split(10, seed=0)
        (array([2, 8, 4, 9, 1, 6, 7, 3, 0]), array([5]))
    """
    if not 0 <= seed < 2**32:
        raise OptionError(f"seed must be between 0 and 2**32 - 1; got {seed}.")
    n_train = int(train_fraction * n) if 0 < train_fraction < 1 else 0
    if not 0 < n_train < n:
        empty = f"A split of {n} rows with train_fraction={train_fraction} leaves a part without rows"
        raise OptionError(f"{empty}: use more rows, or a fraction between 0 and 1 that leaves some on both sides.")
    rows = np.arange(n, dtype=np.int64)
    # The legacy generator on purpose: only it reproduces the published splits.
    np.random.RandomState(seed).shuffle(rows)
    return rows[:n_train], rows[n_train:]
