"""Columns in a report: what is in them, and how calibration differs between their values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gdkl import metrics
from gdkl.estimators.diagnostics import Evidence
from gdkl.inputs import ColumnCode, TableInput, as_frame
from gdkl.predictive import ClassPredictive, FloatArray, Predictive

#: Fewer rows than this show nothing of a group.
_FEWEST = 10

#: A group with more than this part of the rows is like all of them.
_NEARLY_ALL = 0.9

#: Groups that a numeric column is divided into, by its quantiles.
_PARTS = 4

#: Probability of the bands of groups.
_CHANCE = 0.95


@dataclass(frozen=True)
class Group:
    """Some of the rows, and how predictions do there.

    Attributes:
        name: Which rows they are.
        rows: How many.
        observed: Coverage of the 90 % intervals, or accuracy.
        low: Lower end of what chance allows.
        high: Upper end.
        expected: The level of the intervals, or the mean confidence.
    """

    name: str
    rows: int
    observed: float
    low: float
    high: float
    expected: float

    @property
    def beyond(self) -> bool:
        """Whether the observed is beyond what chance allows."""
        return not self.low <= self.observed <= self.high

    @property
    def departure(self) -> float:
        """How far the observed is from the expected, in half widths of the band."""
        half = max(self.high - self.low, 1e-12) / 2
        return abs(self.observed - self.expected) / half


@dataclass(frozen=True)
class Outcome:
    """Whether each row came out as predicted, and with which probability it should have."""

    right: FloatArray
    probability: FloatArray

    def group(self, name: str, rows: NDArray[np.bool_]) -> Group:
        """Of some rows."""
        expected = float(self.probability[rows].mean())
        count = int(rows.sum())
        low, high = metrics.coverage_band(count, expected, _CHANCE)
        return Group(name, count, float(self.right[rows].mean()), float(low), float(high), expected)


def outcome_of(e: Evidence) -> Outcome:
    """Of intervals of 90 %: whether they hold the target; of classes: whether the most probable came true."""
    if isinstance(e.p, ClassPredictive):
        top = e.p.probs.argmax(axis=1)
        right = (e.p.classes[top] == e.y).astype(np.float64)
        return Outcome(right, e.p.probs.max(axis=1))
    low, high = e.p.interval(0.9)
    return Outcome(((low <= e.y) & (e.y <= high)).astype(np.float64), np.full(len(e), 0.9))


def width_groups(e: Evidence) -> list[Group]:
    """Tenths of the rows, from narrow to wide intervals; fewer groups where a tenth has too few rows."""
    if not isinstance(e.p, Predictive):
        return []
    low, high = e.p.interval(0.9)
    outcome = outcome_of(e)
    count = max(1, min(10, len(e) // _FEWEST))
    parts = np.array_split(np.argsort(high - low, kind="stable"), count)
    groups: list[Group] = []
    for number, part in enumerate(parts):
        rows = np.isin(np.arange(len(e)), part)
        end = " (narrowest)" if number == 0 else " (widest)" if number == count - 1 else ""
        groups.append(outcome.group(f"{number + 1}{end}", rows))
    return groups


def column_groups(e: Evidence) -> list[Group]:
    """The groups of rows by one column, those first that depart most from what is expected there."""
    outcome = outcome_of(e)
    groups = [
        outcome.group(name, rows)
        for name, rows in _divided(table_of(e))
        if _FEWEST <= rows.sum() <= _NEARLY_ALL * len(e)
    ]
    return sorted(groups, key=lambda group: -group.departure)


def table_of(e: Evidence) -> pd.DataFrame:
    """The held-out rows as a DataFrame with the user's columns; numbers for columns without names."""
    table: TableInput = e.estimator.kind_.input
    frame = as_frame(e.X)
    if isinstance(frame, pd.DataFrame):
        return frame
    return pd.DataFrame(np.asarray(frame), columns=[f"column {name}" for name in table.names])


def _divided(frame: pd.DataFrame) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Each column's levels, or quantiles, with the rows that have them."""
    for position, name in enumerate(frame.columns):
        column = frame.iloc[:, position]
        missing = column.isna().to_numpy()
        if missing.any():
            yield f"{name} missing", missing
        numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
        if not numeric or column.nunique() <= _PARTS:
            cells = column.astype(str)
            counts = cells[~missing].value_counts()
            for level in counts[counts >= _FEWEST].index:
                yield f"{name} = {_short(level)}", (cells == level).to_numpy() & ~missing
            continue
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        edges = np.unique(np.nanquantile(values, np.linspace(0, 1, _PARTS + 1)))
        for number, (low, high) in enumerate(pairwise(edges)):
            inside = (values >= low) & ((values < high) if number < len(edges) - 2 else (values <= high))
            yield f"{name}: {low:.3g} to {high:.3g}", inside


def _short(text: str, most: int = 18) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def data_card(e: Evidence) -> list[dict[str, Any]]:
    """One entry per column of the user's: name, kind, what its values are, and what is missing or moved."""
    table: TableInput = e.estimator.kind_.input
    frame = table_of(e)
    codes = None if table.encoder is None else table.encoder.columns
    means = dict[int, float]()
    for column, group in enumerate(table.groups):
        value = float(e.rows[:, column].mean())
        if group not in means or abs(value) > abs(means[group]):
            means[int(group)] = value
    return [
        {
            "column": str(name) if codes is not None else f"column {name}",
            "kind": _kind(None if codes is None else codes[position], used=position in means),
            "values": _values(frame.iloc[:, position], None if codes is None else codes[position]),
            "missing": int(frame.iloc[:, position].isna().sum()),
            "moved": means.get(position, float("nan")),
        }
        for position, name in enumerate(table.names)
    ]


def _kind(code: ColumnCode | None, *, used: bool) -> str:
    if code is not None and code.left_out:
        return f"left out: {code.left_out}"
    kind = "number" if code is None else code.kind
    return kind if used else f"{kind}, constant in fit"


def _values(column: Any, code: ColumnCode | None) -> str:
    if code is not None and code.levels:
        names = [_short(str(level)) for level in code.levels[:6]]
        more = f" and {len(code.levels) - 6} more" if len(code.levels) > 6 else ""
        known = {str(level) for level in code.levels}
        other = int((~column.dropna().astype(str).isin(known)).sum())
        beside = f"; {other} rows have other levels" if other else ""
        return f"{', '.join(names)}{more}{beside}"
    if code is not None and code.left_out:
        return f"{column.nunique()} different"
    try:
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        return f"{column.min()} to {column.max()}"
    return f"{np.nanmin(values):.4g} to {np.nanmax(values):.4g}, median {np.nanmedian(values):.4g}"
