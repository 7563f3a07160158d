"""What ``fit`` is passed in place of a table: loaders and lists of batches, and what was meant as such."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from torch.utils.data import DataLoader, Dataset

from gdkl.numerics import DataError

#: What every message about batches says.
_BATCH = "a batch is a pair (x, y) of rows (b, d), or images (b, channels, height, width), and their targets"


def is_stream(X: Any, y: Any = None) -> bool:
    """Whether X yields its rows and targets itself: a torch Dataset or DataLoader, or a list of batches.

    Example:
        >>> import numpy as np
        >>> batch = (np.zeros((4, 2)), np.zeros(4))
        >>> is_stream([batch, batch]), is_stream([[1.0, 2.0], [3.0, 4.0]])
        (True, False)
    """
    return isinstance(X, (DataLoader, Dataset)) or _is_list_of_batches(X, y)


def _is_list_of_batches(X: Any, y: Any) -> bool:
    """Whether X is a list of pairs of rows and targets: not a list of rows, nor of images with two channels."""
    if not isinstance(X, (list, tuple)) or not X:
        return False
    first = cast("list[Any]", X)[0]
    if not isinstance(first, tuple if y is not None else (list, tuple)) or len(cast("list[Any]", first)) != 2:
        return False
    return _dimensions(cast("list[Any]", first)[0]) in (2, 4)


def refuse_malformed_batches(X: Any, y: Any) -> None:
    """Refuse what was meant as batches and is none, in words about batches; tables are let through.

    Args:
        X: What `is_stream` does not take.
        y: Targets beside it. Without them X has to hold its own, and what is no list of numbers was meant as batches.

    Raises:
        DataError: If it was meant so; it says what a batch is.

    Example:
        >>> import numpy as np
        >>> try:
        ...     refuse_malformed_batches([(np.zeros((4, 2)), np.zeros(4), np.ones(4))], None)
        ... except DataError as error:
        ...     print(str(error).partition(" of rows")[0])
        X has batches of 3 parts: a batch is a pair (x, y)
    """
    if isinstance(X, (list, tuple)):
        reason = _of_list(cast("Sequence[Any]", X), y) if X else None
    elif y is None and isinstance(X, Iterator):
        reason = (
            f"X is a {type(X).__name__}, which can be gone through only once: pass list(X), or a DataLoader; {_BATCH}."
        )
    elif y is None and _can_only_be_iterated(X):
        reason = (
            f"X is {type(X).__name__}, which is no table: pass a list of batches, or derive it from torch's "
            f"IterableDataset; {_BATCH}."
        )
    else:
        reason = None
    if reason is not None:
        raise DataError(reason)


def _of_list(X: Sequence[Any], y: Any) -> str | None:
    """What is wrong with a list that was meant as batches."""
    first = X[0]
    if isinstance(first, Mapping):
        if any(_dimensions(value) for value in cast("Mapping[Any, Any]", first).values()):
            return f"X is a list of dicts: {_BATCH}, such as [(batch['x'], batch['y']) for batch in X]."
        return "X is a list of dicts: pass rows as a table, pd.DataFrame(X)."
    if isinstance(first, (list, tuple)) and first:
        parts = cast("Sequence[Any]", first)
        return _of_parts(parts) if y is None or _is_tuple_of_arrays(parts) else None
    if y is None and _dimensions(first) > 1:
        if isinstance(X, tuple) and len(X) == 2 and _length(first) == _length(X[1]):
            return "X is one pair (x, y): call fit(x, y), or pass a list of batches, [(x, y)]."
        return f"X is a list of arrays without targets: {_BATCH}, such as list(zip(X, targets))."
    return None


def _of_parts(parts: Sequence[Any]) -> str | None:
    """What is wrong with the first element of a list, if it is no row of numbers."""
    if (dimensions := _dimensions(parts[0])) == 0:
        return None
    if len(parts) == 2:
        return (
            f"X is a list of pairs with {dimensions}-D x: {_BATCH}. Of single rows pass DataLoader(X, batch_size=512)."
        )
    rest = ", such as [(x, y) for x, y, *_ in X]" if len(parts) > 2 else ""
    return f"X has batches of {len(parts)} part{'s' if len(parts) > 1 else ''}: {_BATCH}{rest}."


def _is_tuple_of_arrays(parts: Sequence[Any]) -> bool:
    return isinstance(parts, tuple) and any(getattr(part, "ndim", 0) > 0 for part in parts)


def _can_only_be_iterated(X: Any) -> bool:
    known = ("__len__", "__array__", "shape", "__dataframe__")
    return hasattr(X, "__iter__") and not any(hasattr(X, name) for name in known)


def _length(value: Any) -> int | None:
    return len(value) if hasattr(value, "__len__") and _dimensions(value) else None


def _dimensions(value: Any) -> int:
    """Number of dimensions, as told by the first element of each."""
    if (known := getattr(value, "ndim", None)) is not None:
        return int(known)
    count = 0
    while isinstance(value, (list, tuple)):
        count += 1
        if not value:
            break
        value = cast("list[Any]", value)[0]
    return count
