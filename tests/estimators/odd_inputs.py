"""Kinds of bad and odd input, each with what must come of it, whatever the estimator.

A kind changes a small plain table. What comes of it is the answer to the plain table itself, where only the container
or the units differ (``same``); another right answer; or an error of one line.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import scipy.sparse
import torch

ROWS, COLUMNS = 24, 3

_RANDOM = np.random.default_rng(0)
#: Whole numbers, so that every type of number holds them.
X = _RANDOM.permuted(np.tile(np.arange(ROWS) - 11.0, (COLUMNS, 1)), axis=1).T.copy()
#: Whole numbers too.
Y = np.round(8 * np.sin(X[:, 0] / 4) + X[:, 1] + _RANDOM.normal(size=ROWS))
NEW = X[::2] + np.array([0.0, 1.0, -1.0])

TOO_FEW = "at least \\d+ rows|one class|n_inducing=.* is more than the"


@dataclass(frozen=True)
class Odd:
    """One kind of input.

    Attributes:
        make: From rows, targets and new rows to those that are passed.
        fit: What the error of ``fit`` says; None for none.
        predict: What that of ``predict`` says.
        same: Whether predictions are those of the plain table; with a number, to this relative precision.
        either: Whether a right answer is as good as the error.
        only: "regressors" or "classifiers", where it is a question for one of them.
    """

    make: Callable[[Any, Any, Any], tuple[Any, Any, Any]]
    fit: str | None = None
    predict: str | None = None
    same: bool | float = False
    either: bool = False
    only: str | None = None


def _rows(change: Callable[[Any], Any]) -> Callable[[Any, Any, Any], tuple[Any, Any, Any]]:
    return lambda x, y, new: (change(x), y, change(new))


def _fitted_rows(change: Callable[[Any], Any]) -> Callable[[Any, Any, Any], tuple[Any, Any, Any]]:
    return lambda x, y, new: (change(x), y, new)


def _targets(change: Callable[[Any], Any]) -> Callable[[Any, Any, Any], tuple[Any, Any, Any]]:
    return lambda x, y, new: (x, change(y), new)


def _first(count: int) -> Callable[[Any, Any, Any], tuple[Any, Any, Any]]:
    return lambda x, y, new: (x[:count], y[:count], new)


def _with(value: Any, place: Any = (3, 1), dtype: Any = None) -> Callable[[Any], Any]:
    def change(x: Any) -> Any:
        changed = x.astype(dtype or x.dtype)
        changed[place] = value
        return changed

    return change


def _masked(place: Any) -> Callable[[Any], Any]:
    def change(values: Any) -> Any:
        masked = np.ma.masked_array(values.copy())
        masked[place] = np.ma.masked
        return masked

    return change


def _read_only(values: Any) -> Any:
    copied = values.copy()
    copied.setflags(write=False)
    return copied


def _strided(x: Any) -> Any:
    wide = np.zeros((2 * len(x), 3 * COLUMNS))
    wide[::2, 1::3] = x
    return wide[::2, 1::3]


def _frame(**options: Any) -> Callable[[Any], Any]:
    return lambda x: pd.DataFrame(x, **options)


def _typed_frame(dtype: Any) -> Callable[[Any], Any]:
    return lambda x: pd.DataFrame(x, columns=list("abc")).astype(dtype)


def _odd_index(x: Any) -> Any:
    return pd.DataFrame(x, columns=list("abc"), index=["same label"] * len(x))


def _arrow(x: Any) -> Any:
    return pyarrow.table({name: x[:, i] for i, name in enumerate("abc")})


def _polars(x: Any) -> Any:
    import polars  # noqa: PLC0415  (not everywhere)

    return polars.DataFrame({name: x[:, i] for i, name in enumerate("abc")})


def _categories(x: Any) -> Any:
    frame = pd.DataFrame(x, columns=list("abc"))
    level = np.where(x[:, 2] > 0, "Łódź", "Köln")
    return frame.assign(c=pd.Categorical(level), d=pd.Series(level, dtype="string"), e=x[:, 0] > 0)


def _missing(x: Any) -> Any:
    frame = pd.DataFrame(x, columns=list("abc")).astype({"a": "Int64", "b": "Float32"})
    frame.loc[::5, "a"] = pd.NA
    return frame


def _dates(x: Any) -> Any:
    days = pd.Timestamp("2026-01-01") + pd.to_timedelta(x[:, 0], unit="D")
    return pd.DataFrame({"day": days, "length": pd.to_timedelta(x[:, 1], unit="h"), "c": x[:, 2]})


def _decimals(x: Any) -> Any:
    return pd.DataFrame(x, columns=list("abc")).map(lambda value: decimal.Decimal(int(value)))


def _wide(columns: int) -> Callable[[Any], Any]:
    def change(x: Any) -> Any:
        random = np.random.default_rng(1)
        return np.concatenate([x, random.normal(size=(len(x), columns - COLUMNS))], axis=1)

    return change


def _twice(change: Callable[[Any], Any]) -> Callable[[Any, Any, Any], tuple[Any, Any, Any]]:
    """Each row twice, with the targets of the second changed."""
    return lambda x, y, new: (np.concatenate([x, x]), np.concatenate([y, change(y)]), new)


#: Bad input of ``fit``. Where it says nothing of classifiers they have another error, or an answer, as ``CLASSES`` has.
BAD = {
    "no rows": Odd(lambda x, y, new: (x[:0], y[:0], new), "0 sample"),
    "no columns": Odd(_rows(lambda x: x[:, :0]), "0 feature"),
    "one row": Odd(_first(1), TOO_FEW, either=True),
    "two rows": Odd(_first(2), TOO_FEW, either=True),
    "three rows": Odd(_first(3), TOO_FEW, either=True),
    "nothing": Odd(_rows(lambda x: None), "X is NoneType"),
    "a text": Odd(_rows(lambda x: "rows"), "X is str"),
    "a dictionary": Odd(_rows(lambda x: {"a": x[:, 0]}), "X is dict"),
    "a generator": Odd(_rows(lambda x: (row for row in x)), "X is generator"),
    "a set": Odd(_rows(lambda x: {1.0, 2.0}), "X is set"),
    "one dimension": Odd(_rows(lambda x: x[:, 0]), "1-D.*reshape"),
    "three dimensions": Odd(_rows(lambda x: x[None]), "3-D"),
    "a number": Odd(_rows(lambda x: 3.0), "0-D|X is float"),
    "lists of different lengths": Odd(_rows(lambda x: [[1.0], [1.0, 2.0]] * (len(x) // 2)), "different lengths"),
    "text in an array": Odd(_rows(lambda x: np.full(x.shape, "a")), "text"),
    "text as objects": Odd(_rows(_with("a", dtype=object)), "text"),
    "complex numbers": Odd(_rows(lambda x: x + 1j), "Complex data"),
    "a complex column": Odd(_rows(lambda x: pd.DataFrame(x).assign(c=1j)), "Complex data"),
    "a sparse matrix": Odd(_rows(scipy.sparse.csr_matrix), "sparse.*toarray"),
    "a sparse array": Odd(_rows(scipy.sparse.csc_array), "sparse.*toarray"),
    "a sparse tensor": Odd(_rows(lambda x: torch.as_tensor(x).to_sparse()), "sparse.*to_dense"),
    "NaN": Odd(_fitted_rows(_with(np.nan)), "X has NaN.*row 3, column 1"),
    "infinity": Odd(_fitted_rows(_with(np.inf)), "X has NaN or inf.*row 3, column 1"),
    "minus infinity in float32": Odd(_fitted_rows(_with(-np.inf, dtype=np.float32)), "X has NaN or inf.*row 3"),
    "infinity in a DataFrame": Odd(_fitted_rows(lambda x: pd.DataFrame(_with(np.inf)(x))), "row 3, column 1"),
    "NaN as an object": Odd(_fitted_rows(_with(None, dtype=object)), "X has NaN.*row 3, column 1"),
    "masked cells": Odd(_fitted_rows(_masked((3, 1))), "masked cells"),
    "masked whole numbers": Odd(_fitted_rows(lambda x: _masked((3, 1))(x.astype(int))), "masked cells"),
    "infinity in a tensor": Odd(_fitted_rows(lambda x: torch.as_tensor(_with(np.inf)(x))), "X has NaN or inf"),
    "a column of 1e300": Odd(_rows(lambda x: x * [1, 1e300, 1]), "column 1 .*other units"),
    "one cell of 1e300": Odd(_fitted_rows(_with(1e300)), "column 1 .*other units"),
    "all of 1e-300": Odd(_rows(lambda x: x * 1e-300), "every column of X is constant", either=True),
    "every column constant": Odd(_rows(np.ones_like), "every column of X is constant", either=True),
    "all rows and targets equal": Odd(lambda x, y, new: (x * 0 + 2, y * 0 + 3, new), "constant|one class", either=True),
    "lists in cells": Odd(_rows(lambda x: pd.DataFrame({"a": [[1.0]] * len(x)})), "no column to learn from"),
    "names alone": Odd(_rows(lambda x: pd.DataFrame({"a": [f"n{i}" for i in range(len(x))]})), "no column to learn"),
    "an empty DataFrame": Odd(_rows(lambda x: pd.DataFrame()), "no columns|0 sample|0 feature"),
    "a DataFrame without columns": Odd(_rows(lambda x: pd.DataFrame(index=range(len(x)))), "no columns|0 feature"),
    "column names of several types": Odd(_rows(_frame(columns=["a", 1, "c"])), "names of several types"),
    "no target": Odd(_targets(lambda y: None), "requires y"),
    "too few targets": Odd(_targets(lambda y: y[:-1]), "24 rows and y has 23"),
    "too many targets": Odd(_targets(lambda y: np.append(y, y)), "24 rows and y has 48"),
    "NaN as a target": Odd(_targets(_with(np.nan, 3, float)), "y has NaN.*row 3"),
    "infinity as a target": Odd(_targets(_with(np.inf, 3, float)), "y has NaN.*row 3"),
    "None as a target": Odd(_targets(_with(None, 3, object)), "y has NaN.*row 3"),
    "a masked target": Odd(_targets(_masked(3)), "masked cells"),
    "a missing target": Odd(_targets(lambda y: pd.Series(y).astype("Int64").mask(y == y[3])), "y has NaN"),
    "complex targets": Odd(_targets(lambda y: y + 1j), "Complex data"),
    "a constant target": Odd(_targets(lambda y: y * 0 + 3), "y is constant|one class", either=True),
    "targets as text": Odd(
        _targets(lambda y: y.astype(str)), "y is not numeric|number", either=True, only="regressors"
    ),
    "targets of 1e300": Odd(_targets(lambda y: y * 1e300), "other units", only="regressors"),
    "targets of 1e-300": Odd(
        _targets(lambda y: y * 1e-300), "y is constant|other units", either=True, only="regressors"
    ),
    "targets of three dimensions": Odd(_targets(lambda y: y[:, None, None]), "shape|label"),
    "fractions as labels": Odd(_targets(lambda y: y + 0.5 * (np.arange(ROWS) % 2)), "class label", only="classifiers"),
    "labels of several types": Odd(_targets(_with("a", 3, object)), "types|label", only="classifiers"),
    "labels as bytes": Odd(_targets(lambda y: y.astype(int).astype("S1")), "bytes.*strings", only="classifiers"),
    "one class": Odd(_targets(lambda y: y * 0), "one class", only="classifiers"),
    "two columns of labels": Odd(_targets(lambda y: np.stack([y, y], axis=1)), "label", only="classifiers"),
}

#: Input that is welcome.
WELCOME = {
    "float32": Odd(_rows(lambda x: x.astype(np.float32)), same=True),
    "float16": Odd(_rows(lambda x: x.astype(np.float16)), same=True),
    "long double": Odd(_rows(lambda x: x.astype(np.longdouble)), same=True),
    "small whole numbers": Odd(_rows(lambda x: x.astype(np.int8)), same=True),
    "whole numbers": Odd(_rows(lambda x: x.astype(np.int64)), same=True),
    "whole numbers without sign": Odd(_rows(lambda x: (x + 20).astype(np.uint16)), same=1e-6),
    "other byte order": Odd(_rows(lambda x: x.astype(">f8")), same=True),
    "objects": Odd(_rows(lambda x: x.astype(object)), same=True),
    "booleans": Odd(_rows(lambda x: x > 0)),
    "lists": Odd(_rows(lambda x: x.tolist()), same=True),
    "tuples": Odd(_rows(lambda x: tuple(map(tuple, x.tolist()))), same=True),
    "Fortran order": Odd(_rows(np.asfortranarray), same=True),
    "not contiguous": Odd(_rows(_strided), same=True),
    "backwards": Odd(_rows(lambda x: np.ascontiguousarray(x[::-1])[::-1]), same=True),
    "read-only": Odd(lambda x, y, new: (_read_only(x), _read_only(y), _read_only(new)), same=True),
    "broadcast targets": Odd(_targets(lambda y: np.broadcast_to(y, (2, ROWS))[1]), same=True),
    "masked without a mask": Odd(_rows(np.ma.masked_array), same=True),
    "a tensor": Odd(_rows(torch.as_tensor), same=True),
    "a tensor with gradients": Odd(_rows(lambda x: torch.tensor(x, requires_grad=True)), same=True),
    "a tensor of bfloat16": Odd(_rows(lambda x: torch.as_tensor(x).bfloat16()), same=True),
    "a transposed tensor": Odd(_rows(lambda x: torch.as_tensor(x.T.copy()).T), same=True),
    "a DataFrame": Odd(_rows(_frame(columns=list("abc"))), same=True),
    "column numbers": Odd(_rows(_frame()), same=True),
    "unicode column names": Odd(_rows(_frame(columns=["größe", "价格 €", "🙂\n%s{}"])), same=True),
    "equal column names": Odd(_rows(_frame(columns=["a", "a", "a"])), "equal names.*rename", same=True, either=True),
    "empty column names": Odd(_rows(_frame(columns=["", " ", "  "])), same=True),
    "an odd index": Odd(_rows(_odd_index), same=True),
    "an index of dates": Odd(_rows(lambda x: pd.DataFrame(x, pd.date_range("2026", periods=len(x)))), same=True),
    "pandas' whole numbers": Odd(_rows(_typed_frame("Int64")), same=True),
    "pandas' floats": Odd(_rows(_typed_frame("Float32")), same=True),
    "Arrow types in pandas": Odd(_rows(_typed_frame("double[pyarrow]")), same=True),
    "decimals": Odd(_rows(_decimals), same=True),
    "mixed types of numbers": Odd(_rows(_typed_frame({"a": "int8", "b": "float32", "c": "Int16"})), same=True),
    "an Arrow table": Odd(_rows(_arrow), same=True),
    "categories and text": Odd(_rows(_categories)),
    "missing cells in a DataFrame": Odd(_rows(_missing)),
    "dates and durations": Odd(_rows(_dates)),
    "units of 1e12": Odd(_rows(lambda x: x * 1e12), same=1e-4),
    "units of 1e-12": Odd(_rows(lambda x: x * 1e-12), same=1e-4),
    "units that differ by 1e24": Odd(_rows(lambda x: x * [1e-12, 1, 1e12]), same=1e-4),
    "units of 1e-100": Odd(_rows(lambda x: x * 1e-100), same=1e-4),
    "a large offset": Odd(_rows(lambda x: x + 1e6), same=1e-4),
    "one cell of 1e100": Odd(_fitted_rows(_with(1e100))),
    "one column": Odd(_rows(lambda x: x[:, :1])),
    "a constant column": Odd(_rows(lambda x: np.insert(x, 1, 7.0, axis=1)), same=True),
    "a constant column of 1e300": Odd(_rows(lambda x: np.insert(x, 1, 1e300, axis=1)), "other units", either=True),
    "a nearly constant column": Odd(_rows(lambda x: np.insert(x, 1, 7 + 1e-9 * x[:, 0], axis=1))),
    "a column with one other value": Odd(_rows(lambda x: np.insert(x, 1, x[:, 0] == 5, axis=1))),
    "a column of 1e-300": Odd(_rows(lambda x: np.insert(x, 1, 1e-300 * x[:, 0], axis=1))),
    "a column of the smallest numbers": Odd(_rows(lambda x: np.insert(x, 1, 5e-324 * x[:, 0], axis=1))),
    "equal columns": Odd(_rows(lambda x: np.repeat(x, 2, axis=1))),
    "collinear columns": Odd(_rows(lambda x: np.column_stack([x, x.sum(axis=1), x[:, 0] - x[:, 1]]))),
    "rows twice": Odd(_twice(lambda y: y)),
    "equal rows with other targets": Odd(_twice(lambda y: y[::-1])),
    "two distinct rows": Odd(_rows(lambda x: np.where(x > 0, 1.0, -1.0)[:, :1])),
    "more columns than rows": Odd(_rows(_wide(200))),
    "targets in a list": Odd(_targets(list), same=True),
    "targets of float16": Odd(_targets(lambda y: y.astype(np.float16)), same=True),
    "whole targets": Odd(_targets(lambda y: y.astype(np.int32)), same=True),
    "targets as objects": Odd(_targets(lambda y: y.astype(object)), same=True),
    "a Series with another index": Odd(_targets(lambda y: pd.Series(y, index=np.arange(ROWS)[::-1])), same=True),
    "a Series of whole numbers": Odd(_targets(lambda y: pd.Series(y).astype("Int64")), same=True),
    "a tensor of targets": Odd(_targets(torch.as_tensor), same=True),
    "masked targets without a mask": Odd(_targets(np.ma.masked_array), same=True),
    "a column of targets": Odd(_targets(lambda y: y[:, None]), same=True),
    "a DataFrame of targets": Odd(_targets(lambda y: pd.DataFrame({"y": y})), same=True),
    "targets of 1e12": Odd(_targets(lambda y: y * 1e12), only="regressors"),
    "targets of 1e-12": Odd(_targets(lambda y: y * 1e-12), only="regressors"),
    "targets of 1e100": Odd(_targets(lambda y: y * 1e100), only="regressors"),
    "targets far from zero": Odd(_targets(lambda y: y + 1e9), only="regressors"),
    "one target that differs": Odd(_targets(lambda y: np.where(np.arange(ROWS) == 5, 1.0, 0.0)), only="regressors"),
    "an extreme target": Odd(_targets(_with(1e9, 5)), only="regressors"),
    "two targets": Odd(_targets(lambda y: np.stack([y, -y], axis=1)), only="regressors"),
    "labels as text": Odd(_targets(lambda y: y.astype(int).astype(str)), same=True, only="classifiers"),
    "unicode labels": Odd(_targets(lambda y: np.array(["ü", "€", "🙂"])[y.astype(int)]), only="classifiers"),
    "large labels": Odd(_targets(lambda y: y * 1e15), same=True, only="classifiers"),
    "two booleans": Odd(_targets(lambda y: y > 0), only="classifiers"),
    "a class with one row": Odd(_targets(lambda y: np.where(np.arange(ROWS) == 5, 1, 0)), only="classifiers"),
}
if find_spec("polars") is not None:
    WELCOME["polars"] = Odd(_rows(_polars), same=True)

#: Takes seconds.
SLOW = {"5000 columns": Odd(_rows(_wide(5000)))}

#: Rows to predict, of a model that was fitted to the plain table.
NEW_ROWS = {
    "none": Odd(_rows(lambda x: x[:0]), predict="0 sample"),
    "nothing": Odd(_rows(lambda x: None), predict="X is NoneType"),
    "text": Odd(_rows(lambda x: np.full(x.shape, "a")), predict="text"),
    "too few columns": Odd(_rows(lambda x: x[:, :2]), predict="X has 2 features, but .* is expecting 3"),
    "too many columns": Odd(_rows(lambda x: np.hstack([x, x])), predict="X has 6 features"),
    "one dimension": Odd(_rows(lambda x: x[0]), predict="1-D.*reshape"),
    "three dimensions": Odd(_rows(lambda x: x[None]), predict="3-D"),
    "a sparse matrix": Odd(_rows(scipy.sparse.csr_matrix), predict="sparse.*toarray"),
    "a sparse tensor": Odd(_rows(lambda x: torch.as_tensor(x).to_sparse()), predict="sparse.*to_dense"),
    "complex numbers": Odd(_rows(lambda x: x + 1j), predict="Complex data"),
    "NaN": Odd(_rows(_with(np.nan)), predict="X has NaN.*row 3, column 1"),
    "infinity": Odd(_rows(_with(np.inf)), predict="X has NaN or inf.*row 3, column 1"),
    "minus infinity in a DataFrame": Odd(_rows(lambda x: pd.DataFrame(_with(-np.inf)(x))), predict="row 3, column 1"),
    "masked cells": Odd(_rows(_masked((3, 1))), predict="masked cells"),
    "missing cells": Odd(_rows(lambda x: pd.DataFrame(_with(np.nan)(x))), predict="X has NaN|missing"),
    "text in a DataFrame": Odd(
        _rows(lambda x: pd.DataFrame(x).assign(c="a").iloc[:, [0, 1, 3]]), predict="not numeric"
    ),
    "one row": Odd(_rows(lambda x: x[:1])),
    "one row in a list": Odd(_rows(lambda x: x[:1].tolist())),
    "far away": Odd(_rows(_with(1e6))),
    "very far away": Odd(_rows(_with(1e30))),
    "1e300": Odd(_rows(_with(1e300)), predict="cannot be predicted.*units of fit", either=True),
    "the largest number": Odd(_rows(_with(-np.finfo(float).max)), predict="cannot be predicted", either=True),
    "a tiny number": Odd(_rows(_with(1e-300))),
    "the smallest number": Odd(_rows(_with(5e-324))),
    "float32": Odd(_rows(lambda x: x.astype(np.float32)), same=True),
    "booleans": Odd(_rows(lambda x: x > 0)),
    "Fortran order": Odd(_rows(np.asfortranarray), same=True),
    "not contiguous": Odd(_rows(_strided), same=True),
    "read-only": Odd(_rows(_read_only), same=True),
    "a DataFrame": Odd(_rows(_frame()), same=True),
    "a tensor": Odd(_rows(torch.as_tensor), same=True),
    "many times the same row": Odd(_rows(lambda x: np.repeat(x[:1], 3000, axis=0))),
}
