"""Tables: columns standardised by the training rows, long tables read a part at a time."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler

from gdkl.inputs.checks import FloatArray, as_frame, check_rows
from gdkl.inputs.encoding import CATEGORY, TableEncoder
from gdkl.numerics import DataError, DataWarning, chunk_slices

if TYPE_CHECKING:
    from torch import Tensor

#: Rows that are read and checked at a time.
PART_ROWS = 50_000

#: Arrays of more bytes than this are checked and scaled a part at a time.
_LONG_BYTES = 2**25

#: A column whose standard deviation is below this part of its mean is constant up to rounding.
_CONSTANT = 1e-13

#: Columns with values so many robust deviations from the median, and at least so many distinct ones, have long tails.
_TAIL, _TAIL_VALUES = 20, 10


def is_long_table(X: Any) -> bool:
    """Whether X is an array too long to be copied without need, or one that is mapped from a file."""
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "iuf":
        return False
    return isinstance(X, np.memmap) or X.nbytes > _LONG_BYTES


def row_parts(X: Any, size: int = PART_ROWS) -> list[tuple[int, Any]]:
    """A long array or DataFrame in parts, each with the number of its first row; anything else as it is."""
    table = as_frame(X)
    if not isinstance(table, (np.ndarray, pd.DataFrame)) or table.ndim != 2 or len(table) <= size:
        return [(0, table)]
    pick: Any = table.iloc if isinstance(table, pd.DataFrame) else table
    return [(part.start, pick[part]) for part in chunk_slices(len(table), size)]


class ColumnMoments:
    """Means and standard deviations of columns that are seen a part of the rows at a time.

    Example:
        >>> moments = ColumnMoments()
        >>> for part in (np.array([[1.0], [2.0]]), np.array([[6.0]])):
        ...     moments.add(part)
        >>> mean, std, varies = moments.scales()
        >>> print(mean, std.round(4), varies, moments.count)
        [3.] [2.1602] [ True] 3
    """

    def __init__(self) -> None:
        self.count = 0
        self._scaler = StandardScaler()

    def add(self, values: NDArray[Any]) -> None:
        """Take in some rows, ``(n, columns)``."""
        if len(values):
            with np.errstate(over="ignore", invalid="ignore"):
                self._scaler.partial_fit(np.asarray(values, dtype=np.float64))
            self.count += len(values)

    def scales(self) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
        """Mean, standard deviation (1 for a constant column) and whether it varies, of each column.

        Raises:
            DataError: If a variance overflows.
        """
        mean, variance = cast(FloatArray, self._scaler.mean_), cast(FloatArray, self._scaler.var_)
        if not bool(np.isfinite(variance).all()):
            column = int(np.flatnonzero(~np.isfinite(variance))[0])
            raise DataError(f"column {column} has values beyond what variances can hold: give it in other units.")
        std = np.sqrt(variance)
        varies = (std > _CONSTANT * np.abs(mean)) & (std > 0)
        return mean, np.where(varies, std, 1.0), varies


@dataclass(frozen=True)
class TableInput:
    """Means and standard deviations of the training columns, as numbers; constant columns are left out.

    Attributes:
        mean: Of the kept columns.
        std: Of the kept columns; of a category, one for all its indicators.
        kept: Which columns vary, ``(d,)`` booleans.
        encoder: How a DataFrame becomes these columns; None for an array.
        tails: Median and spread of each column before an asinh that shortens its tails, and the range beyond which it
            grows as a logarithm, ``(4, d)``; a spread of zero is for no asinh.
    """

    mean: FloatArray
    std: FloatArray
    kept: NDArray[np.bool_]
    encoder: TableEncoder | None = None
    tails: FloatArray | None = None
    image_shape: ClassVar[None] = None

    @classmethod
    def fit(
        cls,
        parts: Iterable[FloatArray],
        encoder: TableEncoder | None = None,
        *,
        tame_tails: bool = False,
        allow_constant: bool = False,
    ) -> TableInput:
        """Learn the scales from parts of the rows.

        Args:
            parts: Rows ``(k, d)`` of each part, encoded.
            encoder: What encoded them.
            tame_tails: Whether columns with extreme values are transformed by an asinh, and values beyond the training
                range by a logarithm; copies all rows.
            allow_constant: Whether all columns may be constant, as those of a single row are; they are kept then.
        """
        tails = None
        if tame_tails:
            parts = list(parts)
            tails = _tails(np.concatenate(parts))
            parts = [_tame(part, tails) for part in parts]
        moments = ColumnMoments()
        for part in parts:
            moments.add(part)
        if encoder is None:
            return replace(cls.from_moments(moments, allow_constant=allow_constant), tails=tails)
        columns = [encoder.columns[group] for group in encoder.groups]
        names = [code.name for code in columns]
        table = replace(cls.from_moments(moments, names, allow_constant=allow_constant), encoder=encoder, tails=tails)
        # The indicators of one category together vary as much as one number; else twelve levels would weigh as much as
        # twelve numbers (docs/results/negative.md).
        levels = np.array([code.kind == CATEGORY for code in columns])[table.kept]
        together = np.sqrt(np.bincount(table.groups, table.std**2)[table.groups])
        return replace(table, std=np.where(levels, together, table.std))

    @classmethod
    def from_moments(cls, moments: ColumnMoments, names: Any = None, *, allow_constant: bool = False) -> TableInput:
        """The scales of columns whose moments are known; warns of constant columns."""
        mean, std, varies = moments.scales()
        if not bool(varies.any()):
            if not allow_constant:
                raise DataError(
                    "every column of X is constant: nothing can be learned from it; give columns that vary."
                )
            if moments.count > 1:
                warnings.warn("Every column of X is constant: all rows are at one place.", DataWarning, stacklevel=6)
            # Nothing is known of their scales: new rows count in their own units.
            return cls(mean, std, np.ones_like(varies))
        if not bool(varies.all()):
            which = [str(names[i]) if names is not None else str(i) for i in np.flatnonzero(~varies)]
            listed = ", ".join(which[:5]) + (" ..." if len(which) > 5 else "")
            plural = "s" if len(which) > 1 else ""
            warnings.warn(f"Constant column{plural} ignored: {listed}.", DataWarning, stacklevel=6)
        return cls(mean[varies], std[varies], varies)

    @property
    def columns(self) -> int:
        """Columns that a network sees."""
        return len(self.mean)

    @property
    def groups(self) -> NDArray[np.intp]:
        """The number of the user's column that each kept column belongs to."""
        return np.flatnonzero(self.kept) if self.encoder is None else self.encoder.groups[self.kept]

    @property
    def names(self) -> list[str | int]:
        """The user's columns: names, or numbers."""
        return list(range(len(self.kept))) if self.encoder is None else [code.name for code in self.encoder.columns]

    def rows(self, X: NDArray[Any]) -> FloatArray:
        """Standardised kept columns, ``(n, kept)``."""
        values = np.asarray(X, dtype=np.float64)
        values = values if self.tails is None else _tame(values, self.tails)
        return (values[:, self.kept] - self.mean) / self.std

    def tensor_rows(self, X: Tensor) -> Tensor:
        """`rows` of a tensor ``(..., d)`` of numbers in float64, with gradients; its columns are those of ``fit``.

        Example:
            >>> import torch
            >>> table = TableInput.fit([np.array([[1.0], [3.0]])])
            >>> table.tensor_rows(torch.tensor([[1.0], [4.0]])).flatten()
            tensor([-1.,  2.], dtype=torch.float64)
        """
        import torch  # noqa: PLC0415  (tables are read without it)

        def tensor(values: NDArray[Any]) -> Tensor:
            return torch.as_tensor(values, device=X.device)

        values = X.double()
        if self.tails is not None:
            centre, spread, low, high = tensor(self.tails)
            long = spread > 0
            values = torch.where(long, torch.asinh((values - centre) / torch.where(long, spread, 1.0)), values)
            unit = torch.where(high > low, (high - low) / 4, 1.0)
            beyond = values - values.clamp(low, high)
            values = values - beyond + beyond.sign() * unit * torch.log1p(beyond.abs() / unit)
        return (values[..., tensor(self.kept)] - tensor(self.mean)) / tensor(self.std)

    def read(self, estimator: BaseEstimator, X: Any, first_row: int = 0) -> FloatArray:
        """New rows, checked against those of ``fit``, encoded and standardised."""
        rows = check_rows(estimator, X, reset=False, first_row=first_row, encoder=self.encoder)
        if self.encoder is not None and isinstance(frame := as_frame(X), pd.DataFrame):
            self.encoder.warn_of_news(frame)
        return self.rows(rows)


def _tails(values: FloatArray) -> FloatArray:
    """Median, spread, lowest and highest value of each column, ``(4, d)``, the last two after the asinh.

    The spread is that of the quartiles, or the typical distance of what is not the median. It is zero for columns
    without extreme values and those of few distinct ones, indicators among them: they stay as they are.
    """
    low, centre, high = np.percentile(values, [25, 50, 75], axis=0)
    away = np.abs(values - centre)
    # Of a constant column there is none.
    typical = np.nanmedian(np.where((away > 0) | (away.max(axis=0) == 0), away, np.nan), axis=0)
    # The quartiles of a normal distribution are 1.349 deviations apart.
    spread = np.where(high > low, (high - low) / 1.349, typical)
    many = np.array([len(np.unique(column)) >= _TAIL_VALUES for column in values.T])
    tails = np.stack([centre, np.where(many & (away.max(axis=0) > _TAIL * spread), spread, 0.0)])
    shortened = _shortened(values, *tails)
    return np.concatenate([tails, [shortened.min(axis=0), shortened.max(axis=0)]])


def _tame(values: FloatArray, tails: FloatArray) -> FloatArray:
    """Columns with their tails shortened; beyond the training range, values grow as a logarithm of the distance.

    Guides extrapolate linearly: a new row at a thousand standard deviations would be predicted as far away.
    """
    values, (low, high) = _shortened(values, *tails[:2]), tails[2:]
    unit = np.where(high > low, (high - low) / 4, 1.0)
    beyond = values - np.clip(values, low, high)
    return values - beyond + np.sign(beyond) * unit * np.log1p(np.abs(beyond) / unit)


def _shortened(values: FloatArray, centre: FloatArray, spread: FloatArray) -> FloatArray:
    return np.where(spread > 0, np.arcsinh((values - centre) / np.where(spread > 0, spread, 1.0)), values)
