"""The table that a model is fitted to: its columns read, its target told apart, some of its rows held out."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gdkl.cli.columns import CATEGORY, as_numbers, guessed, places, present
from gdkl.cli.failures import say
from gdkl.cli.fit_settings import DROP, FitSettings
from gdkl.cli.nearest import or_known
from gdkl.cli.table_files import TableFile, open_table
from gdkl.cli.target import CLASSIFICATION, Target, read_target
from gdkl.numerics import DataError, DataWarning, OptionError

if TYPE_CHECKING:
    import pandas as pd

#: Fewer rows than this have no tenth that tells anything.
_FEWEST = 20


@dataclass(frozen=True)
class TrainingTable:
    """Rows and targets of a fit.

    Attributes:
        name: Of the file.
        frame: The columns, a DataFrame.
        target: What is predicted, without missing values.
        missing: Rows that were left out as they have no target.
    """

    name: str
    frame: pd.DataFrame
    target: Target
    missing: int


def read_training_table(settings: FitSettings) -> TrainingTable:
    """Read the table of a fit.

    Raises:
        DataError: If the target or another column that the user names is not there, or rows have no target.
    """
    import pandas as pd  # noqa: PLC0415  (help does not need it)

    with open_table(settings.data) as table:
        check_header(table)
        if not settings.target:
            raise OptionError(f"name the column to predict with --target: {or_known('', table.names, 30)}.")
        (place,) = places([settings.target], table.names, table.name)
        _check_columns(settings, table)
        cells = table.read()
    decimal = table.dialect.decimal if table.dialect else "."
    labels = settings.columns.get(settings.target) == CATEGORY
    task = settings.task or (CLASSIFICATION if labels else None)
    target = read_target(settings.target, cells.column(place), decimal, task)
    names = columns_of(table, settings.target, settings.dropped)
    if not names:
        raise DataError(
            f"{table.name} has no column beside the target {settings.target!r}: give columns to learn from."
        )
    where = places(names, table.names, table.name)
    read = [
        guessed(name, cells.column(at), decimal, settings.columns.get(name))
        for name, at in zip(names, where, strict=True)
    ]
    frame = pd.concat(read, axis=1, keys=names)
    _warn_of_row_numbers(frame)
    known = target.values.notna().to_numpy()
    missing = int((~known).sum())
    if missing and not settings.drop_missing_target:
        raise DataError(
            f"{missing} of {len(known)} rows have no {settings.target!r} (first: row {int(np.argmin(known)) + 1}): "
            "leave them out with --drop-missing-target, or fill them in."
        )
    values = target.values[known].reset_index(drop=True).rename(settings.target)
    kept = Target(target.task, target.reason, values)
    return TrainingTable(table.name, frame.loc[known].reset_index(drop=True), kept, missing)


def check_header(table: TableFile) -> None:
    """Refuse a table whose first line holds no names."""
    import pyarrow as pa  # noqa: PLC0415

    if table.dialect is not None and as_numbers(present(pa.array(table.names)), table.dialect.decimal) is not None:
        raise DataError(
            f"{table.name} has numbers in its first line ({', '.join(table.names[:3])} ...): write the names of the "
            "columns there."
        )


def columns_of(table: TableFile, target: str, dropped: list[str]) -> list[str]:
    """Names of the columns that are learned from; those without a name are left out, with a line."""
    unnamed = [name for name in table.names if not name or name.startswith("__index_level_")]
    if unnamed:
        places = ", ".join(str(place + 1) for place, name in enumerate(table.names) if name in unnamed)
        warnings.warn(f"Columns without a name are left out: column {places}.", DataWarning, stacklevel=2)
    return [name for name in table.names if name not in (target, *dropped, *unnamed)]


def _check_columns(settings: FitSettings, table: TableFile) -> None:
    for name, kind in settings.columns.items():
        if name not in table.names:
            raise DataError(f"{table.name} has no column {name!r}: {or_known(name, table.names)}.")
        if name == settings.target and kind == DROP:
            raise OptionError(f"{name!r} is the target and cannot be left out: give another with --target.")


def _warn_of_row_numbers(frame: pd.DataFrame) -> None:
    """Say which columns count the rows: of the rows of another table they say nothing."""
    from pandas.api.types import is_numeric_dtype  # noqa: PLC0415

    for name in frame.columns:
        column: Any = frame[name]
        if len(column) < _FEWEST or not is_numeric_dtype(column.dtype) or column.isna().any():
            continue
        values = column.to_numpy(dtype=np.float64)
        if values[0] in (0, 1) and bool((values == values[0] + np.arange(len(values))).all()):
            text = f"Column {name!r} counts the rows. If it means nothing, leave it out: --drop {name}."
            warnings.warn(text, DataWarning, stacklevel=3)


def held_out_rows(target: Target, part: float, seed: int) -> NDArray[np.intp]:
    """Numbers of the rows that are held out; of classes as many of each, in proportion, never all.

    Example:
        >>> import pandas as pd
        >>> labels = pd.Series(["a"] * 30 + ["b"] * 10)
        >>> rows = held_out_rows(Target(CLASSIFICATION, "", labels), 0.1, 0)
        >>> labels[rows].value_counts().to_dict()
        {'a': 3, 'b': 1}
    """
    n = len(target.values)
    if not part or n < _FEWEST:
        if part:
            say(f"There are {n} rows, too few to hold some out: nothing is scored.")
        return np.zeros(0, dtype=np.intp)
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    labels: NDArray[Any] = np.zeros(n)
    if target.task == CLASSIFICATION:
        labels = np.unique(np.asarray(target.values.astype(str)), return_inverse=True)[1]
        # Classes one after the other: every tenth row is in proportion.
        order = order[np.argsort(labels[order], kind="stable")]
    count = max(2, round(part * n))
    picked = order[((np.arange(count) + rng.uniform()) * n / count).astype(np.intp)]
    if target.task == CLASSIFICATION:
        # A label that nobody has learned has no probability.
        picked = picked[np.isin(labels[picked], np.delete(labels, picked))]
    return np.sort(picked)


def kinds_of_columns(frame: pd.DataFrame) -> dict[str, int]:
    """How many columns hold numbers, dates and text."""
    from pandas.api.types import is_datetime64_any_dtype, is_numeric_dtype  # noqa: PLC0415

    counts = {"numbers": 0, "dates": 0, "text": 0}
    for _, column in frame.items():
        numeric, date = is_numeric_dtype(column.dtype), is_datetime64_any_dtype(column.dtype)
        counts["numbers" if numeric else "dates" if date else "text"] += 1
    return {kind: count for kind, count in counts.items() if count}
