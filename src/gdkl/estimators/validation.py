"""Checks of what users pass: every refusal is one line that says what to do."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from gdkl.numerics import DataError, OptionError
from gdkl.predictive import FloatArray

#: Fewer rows cannot be split into two halves from which anything is learned.
MIN_ROWS = 4


def check_rows(estimator: BaseEstimator, X: Any, *, reset: bool, first_row: int = 0) -> FloatArray:
    """Turn X into a finite float64 matrix and remember, or compare, its columns.

    Args:
        estimator: Whose ``n_features_in_`` and ``feature_names_in_`` are set (reset) or compared.
        X: Array, DataFrame or nested list.
        reset: True in ``fit``.
        first_row: Number of the first row, where X is a part of a longer table.
    """
    if isinstance(X, pd.DataFrame):
        _check_columns_numeric(X)
    elif hasattr(X, "toarray"):
        raise DataError("X is a sparse matrix, which is not supported: pass X.toarray().")
    elif X is None or isinstance(X, (str, dict, set, Iterator)) or hasattr(X, "dataset"):
        raise DataError(
            f"X is {type(X).__name__}: give rows as an array, a DataFrame or a list of lists (a Dataset or DataLoader "
            "can be fitted, by GDKL and DKL, not predicted)."
        )
    elif isinstance(X, (list, tuple)) and not X:
        raise DataError("X is empty: give rows, or a list of batches that are pairs of rows and targets.")
    elif (dimensions := _dimensions(X)) != 2:
        raise DataError(
            f"X is {dimensions}-D and must be 2-D, one row a sample. Reshape your data: X.reshape(-1, 1) for a "
            "single column, X.reshape(1, -1) for a single row."
            + (" Grey images, for a classifier: X[:, None]." if dimensions == 3 else "")
        )
    try:
        with warnings.catch_warnings():
            # Numbers kept as Python objects are converted without ado.
            warnings.simplefilter("ignore", FutureWarning)
            values = cast(Any, validate_data)(estimator, X, reset=reset, dtype=np.float64, ensure_all_finite=False)
    except ValueError as error:
        message = str(error)
        if "could not convert string" in message:
            message = f"X has text in it ({message}): encode it as numbers, for example with OneHotEncoder."
        elif message.startswith("Complex data"):
            message = "Complex data not supported: X must be real numbers."
        raise DataError(message) from error
    except TypeError as error:
        if "eature names" not in str(error):
            raise
        raise DataError("X has column names of several types: rename them all to strings.") from error
    _check_finite("X", values, estimator, first_row)
    return values


def _dimensions(X: Any) -> int:
    """Dimensions of an array or a nested list.

    Raises:
        DataError: If a nested list is not an array.
    """
    try:
        return np.asarray(X).ndim
    except (TypeError, ValueError) as error:
        first: Any = X[0] if isinstance(X, (list, tuple)) else None
        if isinstance(first, tuple) and len(cast("tuple[Any, ...]", first)) == 2:
            message = (
                "X is a list of pairs that are not batches: pass DataLoader(X), or pairs of rows (b, d) and targets."
            )
        else:
            message = "X has rows of different lengths: give as many values in each."
        raise DataError(message) from error


def _check_columns_numeric(frame: pd.DataFrame) -> None:
    bad = [
        str(name)
        for position, (name, kind) in enumerate(frame.dtypes.items())
        # Complex columns pass here and are refused below. Columns of objects may still hold plain numbers.
        if not pd.api.types.is_numeric_dtype(kind)
        and not (pd.api.types.is_object_dtype(kind) and _holds_numbers(frame.iloc[:, position]))
    ]
    if bad:
        names = ", ".join(repr(name) for name in bad[:5]) + (" ..." if len(bad) > 5 else "")
        raise DataError(f"X has columns that are not numeric: {names}. Encode them as numbers or drop them.")


def _holds_numbers(column: Any) -> bool:
    if any(isinstance(value, str) for value in column):
        return False
    try:
        np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _check_finite(
    name: str, values: NDArray[np.float64], estimator: BaseEstimator | None = None, first_row: int = 0
) -> None:
    finite = np.isfinite(values)
    if bool(finite.all()):
        return
    index = np.argwhere(~finite)
    where = f"row {first_row + index[0][0]}"
    if values.ndim == 2 and name == "X":
        names = getattr(estimator, "feature_names_in_", None)
        column = index[0][1]
        where += f", column {names[column]!r}" if names is not None else f", column {column}"
    rows = len(np.unique(index[:, 0]))
    raise DataError(
        f"{name} has NaN or infinite (inf) values in {rows} row{'s' if rows > 1 else ''} (first: {where}): drop "
        "these rows or impute the values."
    )


def check_targets(estimator: BaseEstimator, y: Any, n_rows: int) -> FloatArray:
    """Turn y into a finite float64 array ``(n,)`` or ``(n, outputs)`` that varies."""
    if y is None:
        raise DataError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: call fit(X, y)."
        )
    try:
        raw = np.asarray(y)
        if np.iscomplexobj(raw):
            raise DataError("Complex data not supported: y must be real numbers.")
        values = raw.astype(np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError("y is not numeric: a regressor needs numbers; for classes use a classifier.") from error
    if values.ndim not in (1, 2) or values.size == 0:
        raise DataError(f"y has shape {values.shape}: expected ({n_rows},) or ({n_rows}, n_outputs).")
    if values.shape[0] != n_rows:
        raise DataError(f"X has {n_rows} rows and y has {values.shape[0]}: give one target a row.")
    _check_finite("y", values)
    return values


def check_row_count(n_rows: int) -> None:
    """Refuse data that is too short to split."""
    if n_rows < MIN_ROWS:
        plural = "s" if n_rows != 1 else ""
        raise DataError(f"fit needs at least {MIN_ROWS} rows and got {n_rows} sample{plural}: give more data.")


def refuse_fit_options(options: dict[str, Any]) -> None:
    """Refuse what ``fit`` was passed beside X and y."""
    if "sample_weight" in options:
        raise OptionError(
            "sample_weight is not supported: a row's weight has no meaning for the split objective. Fit without it."
        )
    if options:
        raise TypeError(f"fit() got an unexpected keyword argument {next(iter(options))!r}")


def check_number(
    name: str, value: Any, *, low: float, strict: bool, integer: bool = False, boolean: bool = False
) -> None:
    """Refuse an option that is not a finite number above (or at) a bound; a boolean counts only where it may."""
    kinds = (int, np.integer) if integer else (int, float, np.integer, np.floating)
    fine = isinstance(value, kinds) and (boolean or not isinstance(value, bool)) and bool(np.isfinite(value))
    if not fine or value < low or (strict and value == low):
        what = "a whole number" if integer else "a number"
        bound = f"above {low:g}" if strict else f"of at least {low:g}"
        raise OptionError(f"{name}={value!r} is not allowed: use {what} {bound}.")
