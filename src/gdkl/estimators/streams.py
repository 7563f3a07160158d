"""Tables that are not copied: long arrays and memory-mapped files, read a part at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor

from gdkl.estimators.scaling import ColumnMoments, Scaler
from gdkl.estimators.validation import check_rows
from gdkl.methods import held_out_rows
from gdkl.numerics import chunk_slices
from gdkl.predictive import FloatArray
from gdkl.training import ArrayBatches, Batch, BatchSource, TensorBatches

#: Rows that are read and checked at a time.
PART_ROWS = 50_000

#: Arrays of more than this are checked and scaled a part at a time.
_LONG_BYTES = 2**25

#: Scaled rows of up to this size are kept in memory; longer tables stay where they are.
_KEPT_BYTES = 2**28


def is_long_table(X: Any) -> bool:
    """Whether X is an array too long to be copied without need, or one that is mapped from a file."""
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "iuf":
        return False
    return isinstance(X, np.memmap) or X.nbytes > _LONG_BYTES


def row_parts(X: Any, size: int = PART_ROWS) -> list[tuple[int, Any]]:
    """A long array or DataFrame in parts, each with the number of its first row; anything else as it is."""
    long = isinstance(X, (np.ndarray, pd.DataFrame)) and X.ndim == 2 and len(X) > size
    if not long:
        return [(0, X)]
    table = cast(Any, X)
    pick = table.iloc if isinstance(X, pd.DataFrame) else table
    return [(part.start, pick[part]) for part in chunk_slices(len(table), size)]


@dataclass(frozen=True)
class TableStream:
    """A table for training over batches: rows where the user keeps them, scales learned from them.

    Attributes:
        X: Rows ``(n, d)``, finite numbers of any precision.
        scaler: Of rows and targets.
        targets: Scaled, ``(outputs, n)``.
    """

    X: NDArray[Any]
    scaler: Scaler
    targets: FloatArray

    @classmethod
    def read(cls, estimator: BaseEstimator, X: NDArray[Any], y: FloatArray) -> TableStream:
        """Check a table a part at a time and learn its scales, without a copy of it."""
        x_moments, y_moments = ColumnMoments(), ColumnMoments()
        for first, part in row_parts(X):
            x_moments.add(check_rows(estimator, part, reset=first == 0, first_row=first))
        y_moments.add(y.reshape(len(y), -1))
        scaler = Scaler.from_moments(x_moments, y_moments, y.ndim == 1, getattr(estimator, "feature_names_in_", None))
        return cls(X, scaler, scaler.targets(y))

    def batches(
        self,
        batch_size: int,
        seed: int,
        device: torch.device,
        network: torch.dtype,
        algebra: torch.dtype,
        *,
        hold_out: bool,
    ) -> tuple[BatchSource, Batch | None]:
        """Training batches, and the rows that are kept from them for the noise.

        Args:
            batch_size: Rows a step.
            seed: Of the order and of what is kept.
            device: Where to train.
            network: Precision of the rows.
            algebra: Precision of the targets.
            hold_out: Whether any rows are kept.
        """
        n = len(self.X)
        kept = held_out_rows(n) if hold_out else 0
        order = np.random.default_rng(seed).permutation(n)
        held, used = np.sort(order[:kept]), np.sort(order[kept:])

        def fetch(index: NDArray[Any]) -> tuple[Tensor, Tensor]:
            rows = self.scaler.rows(np.asarray(self.X[index], dtype=np.float64))
            return (
                torch.as_tensor(rows).to(device=device, dtype=network),
                torch.as_tensor(self.targets[:, index]).to(device=device, dtype=algebra),
            )

        held_out = Batch(*fetch(held)) if kept else None
        if n * int(self.scaler.kept.sum()) * network.itemsize > _KEPT_BYTES:
            return ArrayBatches(len(used), lambda index: fetch(used[index]), batch_size, seed), held_out
        parts = [fetch(used[part]) for part in chunk_slices(len(used), PART_ROWS)]
        rows = torch.cat([part[0] for part in parts])
        return TensorBatches(rows, torch.cat([part[1] for part in parts], dim=-1), batch_size, seed), held_out
