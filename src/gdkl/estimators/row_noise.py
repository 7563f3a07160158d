"""What a user knows of the noise of each row: weights, or variances of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing  # pyright: ignore[reportPrivateUsage]
from sklearn.utils.validation import _num_samples  # pyright: ignore[reportPrivateUsage]
from torch import Tensor

from gdkl.inputs import FloatArray
from gdkl.inputs.checks import on_cpu
from gdkl.numerics import DataError


class RowNoise(NamedTuple):
    """Row by row what the noise variance is multiplied by, and what is added to it, ``(n,)``; None for nothing."""

    scale: FloatArray | None
    added: FloatArray | None


def read_row_noise(X: Any, y: Any, sample_weight: Any, noise_var: Any) -> tuple[Any, Any, RowNoise | None]:
    """Rows and targets without those of weight zero, and what is said of the noise of the others.

    Weights are relative: a row of mean weight has the noise that predictions have.
    """
    n = int(_num_samples(X))
    added = None if noise_var is None else numbers_per_row("noise_var", noise_var, n)
    if sample_weight is None:
        return X, y, RowNoise(None, added)
    weight = numbers_per_row("sample_weight", sample_weight, n)
    kept = np.flatnonzero(weight > 0)
    if len(kept) == 0:
        raise DataError("sample_weight is zero for every row: give some rows a positive weight.")
    # A constant weight says nothing.
    scale = None if np.ptp(weight[kept]) == 0 else weight[kept].mean() / weight[kept]
    added = None if added is None else added[kept]
    noise = None if scale is None and added is None else RowNoise(scale, added)
    return (X, y, noise) if len(kept) == n else (_take(X, kept), _take(y, kept), noise)


def _take(values: Any, index: NDArray[Any]) -> Any:
    return values[index] if isinstance(values, Tensor) else _safe_indexing(values, index)


def numbers_per_row(name: str, values: Any, n: int) -> FloatArray:
    """One finite number of at least 0 for each of n rows."""
    try:
        found = np.asarray(on_cpu(values), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} is not numeric: give one number per row.") from error
    if found.ndim == 0 and name == "sample_weight":
        found = np.full(n, found)
    if found.shape != (n,):
        raise DataError(f"{name} has shape {found.shape} and X has {n} rows: give one number per row.")
    if not bool(np.isfinite(found).all()) or not bool((found >= 0).all()):
        raise DataError(f"{name} has values that are negative or not finite: give numbers of at least 0.")
    return found
