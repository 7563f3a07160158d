"""What a table's columns go through before a model sees them, as a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gdkl.export.graph import Graph, Value, join, log1p
from gdkl.inputs import ColumnCode, FloatArray, TableEncoder, TableInput
from gdkl.numerics import ModelFileError


def table_rows(graph: Graph, table: TableInput) -> Value:
    """Standardised rows ``(m, columns)`` of the inputs: one per column of a DataFrame, one matrix ``X`` otherwise."""
    if table.encoder is None:
        values = graph.input("X", np.float64, (None, len(table.kept)))
    else:
        values = _encoded(graph, table.encoder)
    if not table.kept.all():
        values = values.take(np.flatnonzero(table.kept), axis=1)
    if table.tails is not None:
        values = _tamed(values, table.tails[:, table.kept])
    return (values - table.mean) / table.std


def _encoded(graph: Graph, encoder: TableEncoder) -> Value:
    """Each used column as numbers, beside each other. All inputs come first: their names are the user's."""
    used = [code for code in encoder.columns if not code.left_out]
    days = ", ".join(repr(code.name) for code in used if code.kind in ("date", "duration"))
    if days:
        raise ModelFileError(f"ONNX cannot read dates and durations ({days}): fit with numbers of days instead.")
    kinds: list[type] = [str if code.levels else np.float64 for code in used]
    cells = [graph.input(str(code.name), kind, (None,)) for code, kind in zip(used, kinds, strict=True)]
    return join([_column(code, values) for code, values in zip(used, cells, strict=True)], axis=1)


def _column(code: ColumnCode, cells: Value) -> Value:
    """One column ``(m,)`` as numbers ``(m, width)``."""
    graph = cells.graph
    if code.levels:
        # Levels in text; an empty cell is missing, any other text is a level that fit has not seen.
        places = {str(level): place for place, level in enumerate(code.levels)}
        places = {"": len(code.levels) + 1} | places
        index = graph.op(
            "LabelEncoder",
            cells,
            domain="ai.onnx.ml",
            keys_strings=list(places),
            values_int64s=list(places.values()),
            default_int64=len(code.levels),
        )
        return graph.constant(_codes(code)).take(index, axis=0)
    cells = cells.insert(1)
    absent = cells.map("IsNaN")
    filled = graph.op("Where", absent, code.fill, cells)
    return join([filled, graph.op("Where", absent, 1.0, 0.0)], axis=1) if code.missing else filled


def _codes(code: ColumnCode) -> FloatArray:
    """What the encoder makes of each level, of one that it has not seen, and of a missing cell."""
    unseen = "?"
    while unseen in code.levels:
        unseen += "?"
    cells: list[Any] = [*code.levels, unseen, None]
    return code.encode(pd.Series(cells, dtype=object))


def _tamed(values: Value, tails: FloatArray) -> Value:
    """As `TableInput` shortens tails."""
    graph, (centre, spread, low, high) = values.graph, tails
    if (spread > 0).any():
        away = (values - centre) / np.where(spread > 0, spread, 1.0)
        size = away.map("Abs")
        asinh = away.map("Sign") * (size + (size.square + 1.0).map("Sqrt")).map("Log")
        values = graph.op("Where", spread > 0, asinh, values)
    unit = np.where(high > low, (high - low) / 4, 1.0)
    inside = values.between(low, high)
    beyond = values - inside
    return inside + beyond.map("Sign") * unit * log1p(beyond.map("Abs") / unit)
