"""Data that comes in batches: torch Datasets, DataLoaders and lists of batches, gone through again and again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, IterableDataset

from gdkl.calibration import held_out_count
from gdkl.calibration.holdout import MOST_HELD_OUT
from gdkl.estimators.loader_passes import content_keys
from gdkl.guide.fit import SUBSET_MOST
from gdkl.inputs import ColumnMoments, check_row_count
from gdkl.inputs.checks import on_cpu
from gdkl.inputs.images import channel_rows
from gdkl.numerics import DataError, OptionError
from gdkl.training import as_pair

#: Rows per batch of a Dataset, where nobody says how many.
_DATASET_BATCH = 512

#: What every message about batches says.
_BATCH = "a batch is a pair (x, y) of rows (b, d), or images (b, channels, height, width), and their targets"


def is_stream(X: Any, y: Any = None) -> bool:
    """Whether X yields its rows and targets itself: a torch Dataset or DataLoader, or a list of batches.

    Example:
        >>> batch = (np.zeros((4, 2)), np.zeros(4))
        >>> is_stream([batch, batch]), is_stream([[1.0, 2.0], [3.0, 4.0]])
        (True, False)
    """
    if isinstance(X, (DataLoader, Dataset)):
        return True
    if not isinstance(X, (list, tuple)) or not X:
        return False
    first: Any = cast("list[Any]", X)[0]
    pair = isinstance(first, tuple if y is not None else (list, tuple)) and len(cast("list[Any]", first)) == 2
    return pair and _ndim(first[0]) in (2, 4)


def refuse_malformed_batches(X: Any, y: Any) -> None:
    """Refuse what was meant as batches and is none; tables are let through."""
    if isinstance(X, (list, tuple)) and X:
        first: Any = cast("list[Any]", X)[0]
        if isinstance(first, dict):
            raise DataError(f"X is a list of dicts: pass pd.DataFrame(X) for rows, or batches: {_BATCH}.")
        arrays = isinstance(first, (list, tuple)) and any(_ndim(part) for part in cast("list[Any]", first))
        if arrays and (y is None or isinstance(first, tuple)):
            count = len(cast("list[Any]", first))
            raise DataError(
                f"X is a list of {count}-part batches: {_BATCH}. Of single rows pass DataLoader(X, batch_size=512)."
            )
        if y is None and not arrays and _ndim(first) > 1:
            raise DataError(f"X is a list of arrays without targets: {_BATCH}; of one table call fit(x, y).")
    elif y is None and hasattr(X, "__iter__") and not any(hasattr(X, name) for name in _TABLE_LIKE):
        raise DataError(
            f"X is {type(X).__name__}, which is no table: pass a list of batches, a DataLoader or a torch "
            f"IterableDataset, which can be gone through again; {_BATCH}."
        )


_TABLE_LIKE = ("__len__", "__array__", "shape", "__dataframe__")


def _ndim(value: Any) -> int:
    """Number of dimensions, judged by the first element of each."""
    count = 0
    while isinstance(value, (list, tuple)) and value:
        value = cast("list[Any]", value)[0]
        count += 1
    return count + int(getattr(value, "ndim", 0))


def as_loader(X: Any, batch_size: int | None, seed: int) -> Iterable[Any]:
    """A loader over a Dataset in a random order; a DataLoader or a list of batches as it is."""
    if isinstance(X, (DataLoader, list, tuple)):
        own = X.batch_size if isinstance(X, DataLoader) else None
        if batch_size is not None and own != batch_size:
            raise OptionError(
                f"batch_size={batch_size!r} is for arrays and Datasets: a DataLoader or a list of batches has its own."
            )
        return cast("Iterable[Any]", X)
    size = _DATASET_BATCH if batch_size is None else batch_size
    if isinstance(X, IterableDataset):
        return cast("Iterable[Any]", DataLoader(X, batch_size=size))
    try:
        rows = len(X)
    except (TypeError, NotImplementedError) as error:
        raise DataError(
            "the Dataset has no length: give it a method __len__, or derive it from torch's IterableDataset."
        ) from error
    if not rows:
        raise DataError("the Dataset is empty: give one with rows.")
    generator = torch.Generator().manual_seed(seed)
    return cast("Iterable[Any]", DataLoader(X, batch_size=max(1, size), shuffle=True, generator=generator))


@dataclass(frozen=True)
class PairReader:
    """Reads what a loader yields as arrays, of the shapes of the batches before if there are any."""

    labels: bool
    row_shape: tuple[int, ...] | None = None
    y_shape: tuple[int, ...] | None = None

    def __call__(self, item: Any, number: int | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows and targets of one batch, which must fit each other and the batches before."""
        name = "a batch" if number is None else f"batch {number}"
        parts: list[NDArray[Any]] = []
        for what, value in zip("xy", as_pair(item, name), strict=True):
            try:
                parts.append(np.asarray(on_cpu(value)))
            except (TypeError, ValueError, RuntimeError) as error:
                reason = "its rows have different lengths" if "inhomogeneous" in str(error) else str(error)
                raise DataError(
                    f"{name} of the loader has {what} that is not an array of numbers: {reason}."
                ) from error
        X, y = parts
        if X.dtype.kind not in "iufb" or X.ndim not in (2, 4):
            raise DataError(
                f"{name} of the loader has x of shape {X.shape} and type {X.dtype}: expected numbers (b, d), or "
                "images (b, channels, height, width)."
            )
        if y.ndim == 0 or len(y) != len(X):
            raise DataError(f"{name} of the loader has x of shape {X.shape} and y of shape {y.shape}: one y per row.")
        y = _class_numbers(y, name) if self.labels else _numbers(y, name)
        for what, values, shape in (("x", X, self.row_shape), ("y", y, self.y_shape)):
            if shape is not None and values.shape[1:] != shape:
                raise DataError(
                    f"{name} of the loader has {what} of shape {values.shape}, where the first batch had rows of shape "
                    f"{shape}."
                )
            if values.dtype.kind == "f" and not bool(np.isfinite(values).all()):
                raise DataError(f"{name} of the loader has NaN or infinite (inf) values in {what}: drop these rows.")
        return X, y


def _class_numbers(y: NDArray[Any], name: str) -> NDArray[Any]:
    if y.dtype.kind not in "iub" or y.ndim != 1:
        raise DataError(
            f"{name} of the loader has labels of type {y.dtype} and shape {y.shape}: give one whole number per row."
        )
    return y


def _numbers(y: NDArray[Any], name: str) -> NDArray[Any]:
    try:
        if y.dtype.kind not in "iufbO":
            raise TypeError(y.dtype)
        values = y.astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"{name} of the loader has y that is not numeric: a regressor needs numbers; for classes use a classifier."
        ) from None
    if values.ndim > 2 or values.size == 0 < len(values):
        raise DataError(f"{name} of the loader has y of shape {values.shape}: expected (b,) or (b, n_outputs).")
    return values


@dataclass(frozen=True)
class FirstPass:
    """What one pass over a loader gives.

    ``rows`` and ``batch_size`` are without the held-out rows; ``X`` and ``y`` are a random sample; moments are of the
    columns, or of the channels of images. ``fingerprint`` identifies the rows in any order, ``order`` the batches as
    they came.
    """

    rows: int
    batch_size: int
    X: NDArray[Any]
    y: NDArray[Any]
    x_moments: ColumnMoments
    y_moments: ColumnMoments
    x_range: tuple[float, float]
    classes: NDArray[Any] | None
    reader: PairReader
    held_out: tuple[NDArray[Any], NDArray[Any], NDArray[np.uint64]] | None = None
    fingerprint: str = ""
    order: str = ""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row or image."""
        return cast("tuple[int, ...]", self.X.shape[1:])


def first_pass(
    loader: Iterable[Any], *, labels: bool, seed: int, hold_out: bool = False, fingerprint: bool = False
) -> FirstPass:
    """Go through a loader once; ``hold_out`` chooses rows by their content, ``fingerprint`` identifies the data."""
    x_moments, y_moments = ColumnMoments(), ColumnMoments()
    generator = np.random.default_rng(seed)
    sample = _SmallestKeys(SUBSET_MOST + (MOST_HELD_OUT if hold_out else 0))
    classes: set[Any] = set()
    reader = PairReader(labels)
    count, largest, together = 0, 0, 0
    low, high = np.inf, -np.inf
    order = hashlib.blake2b(digest_size=8)
    for number, item in enumerate(loader):
        X, y = reader(item, number)
        if not len(X):
            continue
        reader = PairReader(labels, X.shape[1:], y.shape[1:])
        largest, count = max(largest, len(X)), count + len(X)
        low, high = min(low, float(X.min())), max(high, float(X.max()))
        x_moments.add(channel_rows(X) if X.ndim == 4 else X)
        if labels:
            classes.update(np.unique(y).tolist())
        else:
            y_moments.add(y.reshape(len(y), -1))
        if fingerprint:
            own = content_keys(X, y)
            # A sum does not depend on the order.
            together = (together + int(own.sum(dtype=np.uint64))) % 2**64
            order.update(f"{len(own)} ".encode() + own.tobytes())
        # The rows with the smallest of independent random keys are a random sample of all.
        keys = content_keys(X, y, seed) if hold_out else generator.integers(2**63, size=len(X), dtype=np.uint64)
        sample.add(X, y, keys)
    if count < 2:
        rows = "no rows" if not count else "one row only"
        raise DataError(f"the loader yields {rows}: give more data, and a loader that can be gone through again.")
    check_row_count(count)
    sampled, targets, keys = sample.rows()
    held = _held_count(keys, count) if hold_out else 0
    rest = slice(held, held + SUBSET_MOST)
    return FirstPass(
        rows=count - held,
        # What is left of a batch on average, once the held-out rows are gone.
        batch_size=round(largest * (count - held) / count),
        X=sampled[rest],
        y=targets[rest],
        x_moments=x_moments,
        y_moments=y_moments,
        x_range=(low, high),
        classes=np.array(sorted(classes)) if labels else None,
        reader=reader,
        held_out=(sampled[:held], targets[:held], keys[:held]) if held else None,
        fingerprint=f"{count} {largest} {together}" if fingerprint else "",
        order=order.hexdigest() if fingerprint else "",
    )


def _held_count(keys: NDArray[np.uint64], rows: int) -> int:
    """How many of the rows with the smallest keys are held out, rows equal to one of them included."""
    wanted = held_out_count(rows)
    if not wanted:
        return 0
    count = int(np.searchsorted(keys, keys[wanted - 1], side="right"))
    # Of rows that are nearly all alike none can be spared.
    return count if count <= 2 * wanted and count < len(keys) else 0


class _SmallestKeys:
    """The rows with the smallest keys of all that were seen."""

    def __init__(self, most: int):
        self._most, self._count = most, 0
        self._parts: list[tuple[NDArray[Any], NDArray[Any], NDArray[np.uint64]]] = []

    def add(self, X: NDArray[Any], y: NDArray[Any], keys: NDArray[np.uint64]) -> None:
        self._parts.append((X, y, keys))
        self._count += len(keys)
        if self._count > 2 * self._most:
            self._parts = [self.rows()]
            self._count = self._most

    def rows(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.uint64]]:
        """Rows, targets and keys, in the order of the keys."""
        X, y, keys = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        order = np.argsort(keys, kind="stable")[: self._most]
        return X[order], y[order], keys[order]
