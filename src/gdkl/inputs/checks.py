"""Checks of rows, targets and labels: every refusal is one line that says what to do."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data
from torch import Tensor

from gdkl.numerics import DataError

if TYPE_CHECKING:
    from gdkl.inputs.encoding import TableEncoder

FloatArray: TypeAlias = NDArray[np.float64]

#: Filters of warnings, which scikit-learn's checks change for a moment, are the process's own: checks of two threads at
#: the same time would leave those of one behind.
_ONE_AT_A_TIME = RLock()

#: Fewer rows cannot be split into two halves from which anything is learned.
MIN_ROWS = 4


def on_cpu(X: Any) -> Any:
    """A tensor as an array; anything else as it is, but for arrays with masked cells, whose masks would be lost."""
    if np.ma.is_masked(X):
        raise DataError("masked cells are not read: drop these rows, or pass a DataFrame in which they are missing.")
    if isinstance(X, np.ma.MaskedArray):
        return np.ma.getdata(cast(Any, X))
    if not isinstance(X, Tensor):
        return X
    if X.layout is not torch.strided:
        raise DataError("a sparse tensor is not supported: pass it as X.to_dense().")
    # NumPy has no bfloat16.
    return (X.float() if X.dtype == torch.bfloat16 else X).detach().cpu().numpy()


def as_frame(X: Any) -> Any:
    """A table of another library, such as polars or pyarrow, as a DataFrame; a tensor as an array."""
    given = on_cpu(X)
    frame = given.to_pandas() if hasattr(given, "to_pandas") else given
    return frame if isinstance(frame, pd.DataFrame) else given


def check_rows(
    estimator: BaseEstimator, X: Any, *, reset: bool, first_row: int = 0, encoder: TableEncoder | None = None
) -> FloatArray:
    """Turn X into a finite float64 matrix and remember, or compare, its columns.

    Args:
        estimator: Whose ``n_features_in_`` and ``feature_names_in_`` are set (reset) or compared.
        X: Array, tensor, DataFrame or nested list.
        reset: True in ``fit``.
        first_row: Number of the first row, where X is a part of a longer table.
        encoder: How the columns of a DataFrame become numbers, where ``fit`` was given one.
    """
    given = as_frame(X)
    if encoder is not None and _must_encode(encoder, given):
        _validate(estimator, given, reset=reset, skip_check_array=True)
        return encoder.encode(given, first_row)
    if isinstance(given, pd.DataFrame):
        if bad := _not_numeric(given):
            names = ", ".join(repr(name) for name in bad[:5]) + (" ..." if len(bad) > 5 else "")
            raise DataError(f"X has columns that are not numeric: {names}. Pass a DataFrame to fit, or drop them.")
    elif hasattr(given, "toarray"):
        raise DataError("X is a sparse matrix, which is not supported: pass X.toarray().")
    elif given is None or isinstance(given, (str, dict, set, Iterator)) or hasattr(given, "dataset"):
        raise DataError(
            f"X is {type(given).__name__}: give rows as an array, a DataFrame or a list of lists (a Dataset or "
            "DataLoader can be fitted, by GDKL and DKL, not predicted)."
        )
    elif isinstance(given, (list, tuple)) and not given:
        raise DataError("X is empty: give rows, or a list of batches that are pairs of rows and targets.")
    elif (dimensions := _dimensions(given)) != 2:
        raise DataError(
            f"X is {dimensions}-D and must be 2-D, one sample per row. Reshape your data: X.reshape(-1, 1) for a "
            "single column, X.reshape(1, -1) for a single row."
            + (" Grey images, for a classifier: X[:, None]." if dimensions == 3 else "")
        )
    values = _validate(estimator, given, reset=reset, dtype=np.float64, ensure_all_finite=False)
    _check_finite("X", values, estimator, first_row)
    return values


def _must_encode(encoder: TableEncoder, given: Any) -> bool:
    """False for arrays, and for a DataFrame of nothing but numbers where ``fit`` saw nothing else: they are alike."""
    frame = isinstance(given, pd.DataFrame)
    if encoder.plain:
        return frame and (bool(_not_numeric(given)) or bool(given.isna().any(axis=None)))
    if not frame:
        raise DataError("X is no DataFrame, and fit was given one with text, categories or missing cells: pass one.")
    return True


def _validate(estimator: BaseEstimator, given: Any, **options: Any) -> Any:
    """What scikit-learn checks, with errors of our own."""
    try:
        with _ONE_AT_A_TIME, warnings.catch_warnings():
            # Numbers stored as Python objects are converted silently.
            warnings.simplefilter("ignore", FutureWarning)
            return cast(Any, validate_data)(estimator, given, **options)
    except ValueError as error:
        # Names that are missing, unknown or in another order come one per line.
        message = " ".join(str(error).split())
        if "could not convert string" in message:
            message = f"X has text in it ({message}): pass a DataFrame, or encode it as numbers."
        elif message.startswith("Complex data"):
            message = "Complex data not supported: X must be real numbers."
        elif "at least one array or dtype" in message:
            message = "X has no columns: give at least one."
        elif message.startswith("Expected unique column names"):
            message = f"X has columns of equal names ({message.split(' - ', 1)[-1]}): rename them."
        elif "same order" in message:
            message += " Put them in that order: X[model.feature_names_in_]."
        raise DataError(message) from error
    except TypeError as error:
        if "eature names" not in str(error):
            raise
        raise DataError("X has column names of several types: rename them all to strings.") from error


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


def _not_numeric(frame: pd.DataFrame) -> list[str]:
    """Names of the columns that hold something else than numbers."""
    return [
        str(name)
        for position, (name, kind) in enumerate(frame.dtypes.items())
        # Complex columns pass here and are refused later. Columns of objects may still hold plain numbers.
        if not pd.api.types.is_numeric_dtype(kind)
        and not (pd.api.types.is_object_dtype(kind) and holds_numbers(frame.iloc[:, position]))
    ]


def holds_numbers(column: Any) -> bool:
    """Whether the objects of a column are all numbers."""
    if any(isinstance(value, str) for value in column):
        return False
    try:
        np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _check_finite(name: str, values: FloatArray, estimator: BaseEstimator | None = None, first_row: int = 0) -> None:
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
    remedy = "drop these rows" + (" or impute the values" if name == "X" else "")
    raise DataError(
        f"{name} has NaN or infinite (inf) values in {rows} row{'s' if rows > 1 else ''} (first: {where}): {remedy}."
    )


def check_targets(estimator: BaseEstimator, y: Any, n_rows: int) -> FloatArray:
    """Turn y into a finite float64 array ``(n,)`` or ``(n, outputs)``."""
    if y is None:
        raise DataError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: call fit(X, y)."
        )
    try:
        raw = np.asarray(on_cpu(y))
        if np.iscomplexobj(raw):
            raise DataError("Complex data not supported: y must be real numbers.")
        # pandas' NA cannot become a float by itself.
        values = (np.where(pd.isna(raw), np.nan, raw) if raw.dtype == object else raw).astype(np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError("y is not numeric: a regressor needs numbers; for classes use a classifier.") from error
    if values.ndim not in (1, 2) or values.size == 0:
        raise DataError(f"y has shape {values.shape}: expected ({n_rows},) or ({n_rows}, n_outputs).")
    if values.shape[0] != n_rows:
        raise DataError(f"X has {n_rows} rows and y has {values.shape[0]}: give one target per row.")
    _check_finite("y", values)
    return values


def check_labels(estimator: BaseEstimator, y: Any, n_rows: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The classes in sorted order, and each row's class number.

    Numbers, strings and booleans are labels; NaN, None and fractions are not.
    """
    if y is None:
        raise DataError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: call fit(X, y)."
        )
    y = on_cpu(y)
    _refuse_missing_labels(np.asarray(y))
    try:
        labels = column_or_1d(y, warn=True)
        if labels.dtype.kind == "O" and all(isinstance(label, (int, float, np.number)) for label in labels):
            # Numbers stored as Python objects are converted silently.
            labels = np.asarray(labels.tolist())
        with _ONE_AT_A_TIME:
            check_classification_targets(labels)
    except TypeError as error:
        # Bytes, which are no text.
        raise DataError("y has labels as bytes: make them strings, such as y.astype(str).") from error
    except ValueError as error:
        raise DataError(f"{str(error).splitlines()[0].rstrip('.')}: give one class label per row.") from error
    if len(labels) != n_rows:
        raise DataError(f"X has {n_rows} rows and y has {len(labels)}: give one label per row.")
    try:
        classes, index = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise DataError("y has labels of several types: make them all strings or all numbers.") from error
    if len(classes) < 2:
        raise DataError(
            f"y has one class only ({classes.tolist()[0]!r}): a classifier needs rows of at least two classes."
        )
    return classes, index.astype(np.int64)


def _refuse_missing_labels(values: NDArray[Any]) -> None:
    if values.dtype.kind == "c":
        raise DataError("Complex data not supported: y must hold class labels.")
    missing = ~np.isfinite(values) if values.dtype.kind == "f" else pd.isna(values)
    if bool(missing.any()):
        index = np.flatnonzero(missing.reshape(len(missing), -1).any(axis=1))
        raise DataError(
            f"y has NaN, infinity (inf) or None for labels in {len(index)} row{'s' if len(index) > 1 else ''} (first: "
            f"row {index[0]}): drop these rows or label them."
        )


def check_row_count(n_rows: int) -> None:
    """Refuse data that is too short to split."""
    if n_rows < MIN_ROWS:
        plural = "s" if n_rows != 1 else ""
        raise DataError(f"fit needs at least {MIN_ROWS} rows and got {n_rows} sample{plural}: give more data.")
