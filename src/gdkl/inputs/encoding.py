"""Any DataFrame as numbers: categories as indicators, missing cells filled in and marked, dates as days."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import infer_dtype, is_numeric_dtype

from gdkl.inputs.checks import FloatArray, as_frame, holds_numbers
from gdkl.numerics import DataError, DataWarning

#: Levels of a column that have an indicator each; of more, the most frequent have.
MOST_LEVELS = 12

#: A level, or missing cells, in fewer rows than this have no indicator: the row would be alone with it.
LEVEL_ROWS = 3

NUMBER, DATE, DURATION, ORDER, CATEGORY = "number", "date", "duration", "ordered category", "category"

#: What pandas infers of cells that are neither text nor plain numbers.
_KINDS: dict[str, str] = {
    "boolean": NUMBER,
    **dict.fromkeys(("datetime64", "datetime", "date", "period"), DATE),
    **dict.fromkeys(("timedelta64", "timedelta"), DURATION),
}
_DAY = pd.Timedelta(days=1)


@dataclass(frozen=True)
class ColumnCode:
    """How one of the user's columns becomes numbers; every field is plain JSON.

    Attributes:
        name: The user's.
        kind: ``number``; ``date`` or ``duration``, a number of days; ``ordered category``, the place of a level;
            ``category``, one indicator per level, or one column of 1 and −1 for two. Other levels are zero everywhere.
        levels: Of a category, as the user wrote them.
        missing: Whether missing cells have an indicator.
        fill: The median, which stands for a missing number.
        left_out: Why the column is not used; empty if it is.
    """

    name: str | int
    kind: str = NUMBER
    levels: Sequence[Any] = ()
    missing: bool = False
    fill: float = 0.0
    left_out: str = ""

    def __post_init__(self) -> None:
        # JSON has no tuples.
        object.__setattr__(self, "levels", tuple(self.levels))

    @classmethod
    def fit(cls, name: Any, column: Any) -> ColumnCode:
        """Look at the training cells."""
        name, kind = _plain(name), _kind_of(column)
        if not column.count():
            return cls(name, left_out="only missing cells")
        missing = int(column.isna().sum()) >= LEVEL_ROWS
        if kind == CATEGORY:
            try:
                codes, values = pd.factorize(column)
            except (TypeError, NotImplementedError):
                return cls(name, left_out="neither numbers nor text")
            counts = np.bincount(codes[codes >= 0])
            frequent = [i for i in np.argsort(-counts, kind="stable")[:MOST_LEVELS] if counts[i] >= LEVEL_ROWS]
            if not frequent or (len(counts) > MOST_LEVELS and 2 * len(counts) > counts.sum()):
                return cls(name, left_out="values that hardly ever occur twice")
            return cls(name, kind, [_plain(values[i]) for i in frequent], missing)
        levels = [_plain(level) for level in column.cat.categories] if kind == ORDER else []
        code = cls(name, kind, levels, missing)
        return replace(code, fill=float(np.nanmedian(code._read(column))))

    @property
    def width(self) -> int:
        """Columns that it becomes."""
        if self.left_out:
            return 0
        count = len(self.levels) + self.missing
        return 1 + self.missing if self.kind != CATEGORY else 1 if count == 2 else count

    def encode(self, column: Any, first_row: int = 0) -> FloatArray:
        """The cells of some rows as numbers ``(n, width)``.

        Raises:
            DataError: If there are infinite numbers, or cells of another type than in ``fit``.
        """
        values = self._read(column)
        if self.kind == CATEGORY:
            flags = (values[:, None] == np.arange(len(self.levels) + self.missing)).astype(np.float64)
            return flags[:, :1] - flags[:, 1:] if flags.shape[1] == 2 else flags
        infinite, absent = np.flatnonzero(np.isinf(values)), np.isnan(values)
        if len(infinite):
            raise DataError(
                f"X has infinite (inf) values in column {self.name!r} (first: row {first_row + infinite[0]}): drop "
                "these rows or make the cells empty."
            )
        filled = np.where(absent, self.fill, values)
        return np.stack([filled, absent], axis=1) if self.missing else filled[:, None]

    def _read(self, column: Any) -> FloatArray:
        """One number per cell: its place among the levels, −1 for others; else NaN where it is missing."""
        numbers = is_numeric_dtype(column.dtype) and bool(column.count())
        try:
            if self.levels:
                return self._places(column, numbers)
            if self.kind != NUMBER and numbers:
                raise TypeError("it has numbers")
            if self.kind == DATE:
                column = column.astype(str) if isinstance(column.dtype, pd.PeriodDtype) else column
                column = (pd.to_datetime(column, utc=True) - pd.Timestamp(0, tz="UTC")) / _DAY
            elif self.kind == DURATION:
                column = pd.to_timedelta(column) / _DAY
            elif not is_numeric_dtype(column.dtype):
                column = pd.to_numeric(column)
            return column.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError, NotImplementedError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise DataError(
                f"column {self.name!r} was read as {self.kind} in fit and cannot be now ({reason}): convert it."
            ) from error

    def _places(self, column: Any, numbers: bool) -> FloatArray:
        texts = {isinstance(level, str) for level in self.levels}
        if texts == {numbers} and (numbers or isinstance(column.dtype, pd.StringDtype)):
            raise TypeError(f"it has {'numbers' if numbers else 'text'}")
        codes, values = pd.factorize(column)
        plain = pd.Index([_plain(value) for value in values], dtype=object)
        places = pd.Index(self.levels, dtype=object).get_indexer(plain).astype(np.float64)
        if self.kind == ORDER:
            return np.append(np.where(places < 0, np.nan, places), np.nan)[codes]
        return np.append(places, len(self.levels) if self.missing else -1)[codes]


@dataclass(frozen=True)
class TableEncoder:
    """How each column of a DataFrame becomes numbers.

    Example:
        >>> frame = pd.DataFrame({"city": ["Ghent", "Bonn", "Ghent", "Bonn"] * 3, "size": [1.0, None, 3.0, 4.0] * 3})
        >>> encoder = TableEncoder.fit(frame)
        >>> print(encoder.encode(frame)[:3], encoder.groups)
        [[ 1.  1.  0.]
         [-1.  3.  1.]
         [ 1.  3.  0.]] [0 1 1]
    """

    columns: tuple[ColumnCode, ...]

    @classmethod
    def fit(cls, X: Any) -> TableEncoder | None:
        """Look at a training table; None for what is no DataFrame, or empty. Warns of columns that are left out."""
        frame = as_frame(X)
        if not isinstance(frame, pd.DataFrame) or not frame.size:
            return None
        columns = tuple(ColumnCode.fit(name, frame.iloc[:, i]) for i, name in enumerate(frame.columns))
        out = ", ".join(f"{column.name!r} ({column.left_out})" for column in columns if column.left_out)
        if all(column.left_out for column in columns):
            raise DataError(f"X has no column to learn from: {out}; give numbers or categories.")
        if out:
            warnings.warn(f"Columns left out: {out}.", DataWarning, stacklevel=4)
        if dates := ", ".join(repr(column.name) for column in columns if column.kind in (DATE, DURATION)):
            warnings.warn(f"Dates and durations are read as numbers of days: {dates}.", DataWarning, stacklevel=4)
        return cls(columns)

    @property
    def plain(self) -> bool:
        """Whether every column is a number, as in an array."""
        return all(column == ColumnCode(column.name, fill=column.fill) for column in self.columns)

    @property
    def groups(self) -> NDArray[np.intp]:
        """The number of the user's column that each encoded column belongs to."""
        return np.repeat(np.arange(len(self.columns)), [column.width for column in self.columns])

    def warn_of_news(self, frame: pd.DataFrame) -> None:
        """Warn of new rows that are unlike those of ``fit`` in a way that predictions cannot show."""
        empty, strange = list[str](), list[str]()
        for column, cells in ((one, frame.iloc[:, i]) for i, one in enumerate(self.columns) if not one.left_out):
            if column.kind != CATEGORY:
                if not column.missing and bool(cells.isna().any()):
                    empty.append(repr(column.name))
            else:
                unknown = int(((column._read(cells) < 0) & cells.notna().to_numpy()).sum())
                if unknown >= LEVEL_ROWS and 2 * unknown > len(cells):
                    strange.append(repr(column.name))
        if empty:
            text = (
                "Missing cells, of which fit saw hardly any, are filled in with the median, and intervals do not widen"
            )
            warnings.warn(f"{text} for them: {', '.join(empty)}.", DataWarning, stacklevel=4)
        if strange:
            text = "Most cells have levels that fit hardly saw (other spelling?), and intervals do not widen for them"
            warnings.warn(f"{text}: {', '.join(strange)}.", DataWarning, stacklevel=4)

    def encode(self, frame: pd.DataFrame, first_row: int = 0) -> FloatArray:
        """Rows of numbers; missing ones are filled in.

        Args:
            frame: The columns of ``fit``, in that order.
            first_row: Number of the first row, where the frame is a part of a longer one.
        """
        used = [(column, frame.iloc[:, i]) for i, column in enumerate(self.columns) if not column.left_out]
        return np.concatenate([column.encode(cells, first_row) for column, cells in used], axis=1)


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, (str, int, float)) else str(value)


def _kind_of(column: Any) -> str:
    if isinstance(column.dtype, pd.CategoricalDtype):
        return ORDER if cast(Any, column.dtype).ordered else CATEGORY
    if np.dtype(complex) == column.dtype:
        raise DataError("Complex data not supported: X must be real numbers.")
    if is_numeric_dtype(column.dtype) or (column.dtype == object and holds_numbers(column.dropna())):
        return NUMBER
    inferred = infer_dtype(column, skipna=True)
    if inferred == "string" and column.nunique() > MOST_LEVELS:
        # Numbers written as text.
        numbers: Any = pd.to_numeric(column, errors="coerce")
        return NUMBER if numbers.count() == column.count() else CATEGORY
    return _KINDS.get(inferred, CATEGORY)
