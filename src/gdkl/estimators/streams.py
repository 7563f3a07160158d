"""Data that is not copied: long arrays, memory-mapped files, torch Datasets and DataLoaders, read a part at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from gdkl.estimators.scaling import ColumnMoments, Scaler
from gdkl.estimators.validation import check_rows
from gdkl.guide.batch import SUBSET_MOST
from gdkl.methods import held_out_rows
from gdkl.numerics import DataError, OptionError, chunk_slices
from gdkl.predictive import FloatArray
from gdkl.training import ArrayBatches, Batch, BatchSource, LoaderBatches, TensorBatches, as_pair

#: Rows that are read and checked at a time.
PART_ROWS = 50_000

#: Arrays of more than this are checked and scaled a part at a time.
_LONG_BYTES = 2**25

#: Scaled rows of up to this size are kept in memory; longer tables stay where they are.
_KEPT_BYTES = 2**28

#: Rows a batch of a Dataset, where nobody says how many.
_DATASET_BATCH = 512


def is_stream(X: Any) -> bool:
    """Whether X yields its rows and targets itself: a torch Dataset or DataLoader."""
    return isinstance(X, (DataLoader, Dataset))


def is_long_table(X: Any) -> bool:
    """Whether X is an array too long to be copied without need, or one that is mapped from a file."""
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "iuf":
        return False
    return isinstance(X, np.memmap) or X.nbytes > _LONG_BYTES


def row_parts(X: Any, size: int = PART_ROWS) -> list[tuple[int, Any]]:
    """A long array or DataFrame in parts, each with the number of its first row; anything else as it is."""
    long = isinstance(X, (np.ndarray, pd.DataFrame)) and X.ndim == 2 and len(X) > size
    if not long:
        return [(0, X)]
    table = cast(Any, X)
    pick = table.iloc if isinstance(X, pd.DataFrame) else table
    return [(part.start, pick[part]) for part in chunk_slices(len(table), size)]


@dataclass(frozen=True)
class TableStream:
    """A table for training over batches: rows where the user keeps them, scales learned from them.

    Attributes:
        X: Rows ``(n, d)``, finite numbers of any precision.
        scaler: Of rows and targets.
        targets: Scaled, ``(outputs, n)``.
    """

    X: NDArray[Any]
    scaler: Scaler
    targets: FloatArray

    @classmethod
    def read(cls, estimator: BaseEstimator, X: NDArray[Any], y: FloatArray) -> TableStream:
        """Check a table a part at a time and learn its scales, without a copy of it."""
        x_moments, y_moments = ColumnMoments(), ColumnMoments()
        for first, part in row_parts(X):
            x_moments.add(check_rows(estimator, part, reset=first == 0, first_row=first))
        y_moments.add(y.reshape(len(y), -1))
        scaler = Scaler.from_moments(x_moments, y_moments, y.ndim == 1, getattr(estimator, "feature_names_in_", None))
        return cls(X, scaler, scaler.targets(y))

    def batches(
        self, batch_size: int, seed: int, device: torch.device, network: torch.dtype, algebra: torch.dtype
    ) -> tuple[BatchSource, Batch | None]:
        """Training batches, and the rows that are kept from them for the noise.

        Args:
            batch_size: Rows a step.
            seed: Of the order and of what is kept.
            device: Where to train.
            network: Precision of the rows.
            algebra: Precision of the targets.
        """
        n = len(self.X)
        kept = held_out_rows(n)
        order = np.random.default_rng(seed).permutation(n)
        held, used = np.sort(order[:kept]), np.sort(order[kept:])

        def fetch(index: NDArray[Any]) -> tuple[Tensor, Tensor]:
            rows = self.scaler.rows(np.asarray(self.X[index], dtype=np.float64))
            return (
                torch.as_tensor(rows).to(device=device, dtype=network),
                torch.as_tensor(self.targets[:, index]).to(device=device, dtype=algebra),
            )

        held_out = Batch(*fetch(held)) if kept else None
        if n * int(self.scaler.kept.sum()) * network.itemsize > _KEPT_BYTES:
            return ArrayBatches(len(used), lambda index: fetch(used[index]), batch_size, seed), held_out
        parts = [fetch(used[part]) for part in chunk_slices(len(used), PART_ROWS)]
        rows = torch.cat([part[0] for part in parts])
        return TensorBatches(rows, torch.cat([part[1] for part in parts], dim=-1), batch_size, seed), held_out


@dataclass(frozen=True)
class FirstPass:
    """What one pass over a loader tells.

    Attributes:
        rows: Number of rows.
        batch_size: Rows of the largest batch.
        X: Rows that were kept at random, ``(k, ...)``.
        y: Their targets.
        x_moments: Of the columns, or of the channels of images.
        y_moments: Of the targets; None for labels.
        labels: The classes, sorted; None for numbers.
        row_shape: Shape of one row or image.
        y_is_1d: Whether a target is a single number.
    """

    rows: int
    batch_size: int
    X: NDArray[Any]
    y: NDArray[Any]
    x_moments: ColumnMoments
    y_moments: ColumnMoments | None
    labels: NDArray[Any] | None
    row_shape: tuple[int, ...]
    y_is_1d: bool


def as_loader(X: Any, batch_size: int | None, seed: int) -> Iterable[Any]:
    """A loader over a Dataset in a random order; a DataLoader as it is.

    Raises:
        OptionError: If a batch size was asked for that the loader does not have.
    """
    if isinstance(X, DataLoader):
        if batch_size is not None and X.batch_size != batch_size:
            raise OptionError(
                f"batch_size={batch_size!r} is not that of the DataLoader, {X.batch_size!r}: leave it out."
            )
        return cast("Iterable[Any]", X)
    size = _DATASET_BATCH if batch_size is None else batch_size
    if isinstance(X, IterableDataset):
        return cast("Iterable[Any]", DataLoader(X, batch_size=size))
    # A size of one would not be split: the loop refuses it in its own words.
    generator = torch.Generator().manual_seed(seed)
    return cast("Iterable[Any]", DataLoader(X, batch_size=max(1, size), shuffle=True, generator=generator))


def read_pair(item: Any, row_shape: tuple[int, ...] | None, number: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """One batch of a loader as arrays of the right shapes.

    Raises:
        DataError: If it is not a pair of rows and targets that fit each other and the batches before.
    """
    first, second = as_pair(item)
    try:
        X, y = (np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value) for value in (first, second))
    except (TypeError, ValueError) as error:
        raise DataError(f"batch {number} of the loader cannot be read as numbers: {error}.") from error
    if X.dtype.kind not in "iufb" or X.ndim not in (2, 4):
        raise DataError(
            f"batch {number} of the loader has x of shape {X.shape} and type {X.dtype}: expected numbers (b, d), or "
            "images (b, channels, height, width)."
        )
    if y.ndim == 0 or len(y) != len(X):
        raise DataError(f"batch {number} of the loader has x of shape {X.shape} and y of shape {y.shape}: one y a row.")
    if row_shape is not None and X.shape[1:] != row_shape:
        raise DataError(
            f"batch {number} of the loader has rows of shape {X.shape[1:]}, where the first batch had {row_shape}."
        )
    if X.dtype.kind == "f" and not bool(np.isfinite(X).all()):
        raise DataError(f"batch {number} of the loader has NaN or infinite (inf) values in x: drop these rows.")
    if y.dtype.kind == "f" and not bool(np.isfinite(y).all()):
        raise DataError(f"batch {number} of the loader has NaN or infinite (inf) values in y: drop these rows.")
    return X, y


def first_pass(loader: Iterable[Any], *, labels: bool, seed: int) -> FirstPass:
    """Go through a loader once: count, scales, classes, and some rows drawn at random to start from.

    Args:
        loader: Yields pairs of rows and targets.
        labels: Whether targets are labels.
        seed: Of the rows that are kept.
    """
    x_moments, y_moments = ColumnMoments(), ColumnMoments()
    generator = np.random.default_rng(seed)
    kept_x: list[NDArray[Any]] = []
    kept_y: list[NDArray[Any]] = []
    kept_keys: NDArray[np.float64] = np.zeros(0)
    classes: NDArray[Any] | None = None
    row_shape: tuple[int, ...] | None = None
    count, largest, y_is_1d = 0, 0, True
    for number, item in enumerate(loader):
        X, y = read_pair(item, row_shape, number)
        row_shape = cast("tuple[int, ...]", X.shape[1:])
        largest, count, y_is_1d = max(largest, len(X)), count + len(X), y.ndim == 1
        x_moments.add(X.swapaxes(0, 1).reshape(X.shape[1], -1).T if X.ndim == 4 else X)
        if labels:
            found = np.unique(y)
            classes = found if classes is None else np.union1d(classes, found)
        else:
            y_moments.add(y.reshape(len(y), -1))
        # The rows with the smallest of independent random keys are a random sample of all.
        kept_x.append(X)
        kept_y.append(y)
        kept_keys = np.concatenate([kept_keys, generator.random(len(X))])
        if len(kept_keys) > 2 * SUBSET_MOST:
            kept_x, kept_y, kept_keys = _smallest(kept_x, kept_y, kept_keys)
    if row_shape is None or count < 2:
        raise DataError(
            "the loader yields fewer than two rows: give more data, and one that can be gone through again."
        )
    kept_x, kept_y, _ = _smallest(kept_x, kept_y, kept_keys)
    moments = None if labels else y_moments
    return FirstPass(count, largest, kept_x[0], kept_y[0], x_moments, moments, classes, row_shape, y_is_1d)


def _smallest(
    X: list[NDArray[Any]], y: list[NDArray[Any]], keys: NDArray[np.float64]
) -> tuple[list[NDArray[Any]], list[NDArray[Any]], NDArray[np.float64]]:
    order = np.argsort(keys)[:SUBSET_MOST]
    return [np.concatenate(X)[order]], [np.concatenate(y)[order]], keys[order]


def regression_loader(
    loader: Iterable[Any],
    told: FirstPass,
    scaler: Scaler,
    device: torch.device,
    network: torch.dtype,
    algebra: torch.dtype,
) -> LoaderBatches:
    """Batches of a loader of numbers, scaled."""

    def scaled(X: NDArray[Any], y: NDArray[Any]) -> tuple[Tensor, Tensor]:
        rows = scaler.rows(np.asarray(X, dtype=np.float64))
        targets = scaler.targets(np.asarray(y, dtype=np.float64))
        return (
            torch.as_tensor(rows).to(device=device, dtype=network),
            torch.as_tensor(targets).to(device=device, dtype=algebra),
        )

    def convert(item: Any) -> tuple[Tensor, Tensor]:
        return scaled(*read_pair(item, told.row_shape, 0))

    return LoaderBatches(loader, convert, told.rows, max(2, told.batch_size), scaled(told.X, told.y))
