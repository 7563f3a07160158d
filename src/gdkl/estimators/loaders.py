"""Data that comes in batches: torch Datasets, DataLoaders and lists of batches, gone through again and again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from gdkl.estimators.held_out import ContentFilter, content_keys, split_by_position
from gdkl.estimators.passes import SeededPasses
from gdkl.estimators.scaling import ColumnMoments, Scaler
from gdkl.guide.fit import SUBSET_MOST
from gdkl.methods import held_out_rows
from gdkl.methods.held_out_noise import MOST_HELD_OUT
from gdkl.numerics import DataError, OptionError
from gdkl.training import Batch, LoaderBatches, as_pair

#: Rows a batch of a Dataset, where nobody says how many.
_DATASET_BATCH = 512


@dataclass(frozen=True)
class FirstPass:
    """What one pass over a loader tells.

    Attributes:
        rows: Number of rows to train on.
        batch_size: Rows of the largest batch.
        X: Rows that were kept at random, ``(k, ...)``.
        y: Their targets.
        x_moments: Of the columns, or of the channels of images.
        y_moments: Of the targets; None for labels.
        labels: The classes, sorted; None for numbers.
        row_shape: Shape of one row or image.
        y_shape: Shape of one target.
        held_out: Rows and targets that are not to be trained on, where some were asked for.
        held_keys: Their keys, by which they are known again.
        fingerprint: What identifies the rows and the size of batches, in any order; empty where it was not asked for.
        order: What identifies the batches in the order of this pass; likewise.
    """

    rows: int
    batch_size: int
    X: NDArray[Any]
    y: NDArray[Any]
    x_moments: ColumnMoments
    y_moments: ColumnMoments | None
    labels: NDArray[Any] | None
    row_shape: tuple[int, ...]
    y_shape: tuple[int, ...]
    held_out: tuple[NDArray[Any], NDArray[Any]] | None = None
    held_keys: NDArray[np.uint64] | None = None
    fingerprint: str = ""
    order: str = ""


def as_loader(X: Any, batch_size: int | None, seed: int) -> Iterable[Any]:
    """A loader over a Dataset in a random order; a DataLoader or a list of batches as it is, see `SeededPasses`.

    Raises:
        OptionError: If a batch size was asked for that the loader does not have.
        DataError: If a Dataset is empty or has no length.
    """
    if isinstance(X, DataLoader):
        if batch_size is not None and X.batch_size != batch_size:
            raise OptionError(
                f"batch_size={batch_size!r} is not that of the DataLoader, {X.batch_size!r}: leave it out."
            )
        return cast("Iterable[Any]", X)
    if isinstance(X, (list, tuple)):
        if batch_size is not None:
            raise OptionError(
                f"batch_size={batch_size!r} is for arrays and Datasets, not a list of batches: leave it out."
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
    # A size of one would not be split: the loop refuses it in its own words.
    generator = torch.Generator().manual_seed(seed)
    return cast("Iterable[Any]", DataLoader(X, batch_size=max(1, size), shuffle=True, generator=generator))


def _as_array(value: Any) -> NDArray[Any]:
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        # NumPy has no such numbers.
        return np.asarray(value.float() if value.dtype == torch.bfloat16 else value)
    return np.asarray(value)


def read_pair(
    item: Any,
    number: int | None,
    *,
    labels: bool,
    row_shape: tuple[int, ...] | None = None,
    y_shape: tuple[int, ...] | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """One batch of a loader as arrays of the right shapes.

    Args:
        item: What the loader yields.
        number: Of the batch, from 0; None where it is not known.
        labels: Whether targets are labels.
        row_shape: Shape of one row in the batches before, if there are any.
        y_shape: Shape of one target there.

    Raises:
        DataError: If it is not a pair of rows and targets that fit each other and the batches before.
    """
    name = "a batch" if number is None else f"batch {number}"
    parts: list[NDArray[Any]] = []
    for what, value in zip("xy", as_pair(item, name), strict=True):
        try:
            parts.append(_as_array(value))
        except (TypeError, ValueError, RuntimeError) as error:
            reason = "its rows have different lengths" if "inhomogeneous" in str(error) else str(error)
            raise DataError(f"{name} of the loader has {what} that is not an array of numbers: {reason}.") from error
    X, y = parts
    if X.dtype.kind not in "iufb" or X.ndim not in (2, 4):
        raise DataError(
            f"{name} of the loader has x of shape {X.shape} and type {X.dtype}: expected numbers (b, d), or "
            "images (b, channels, height, width)."
        )
    if y.ndim == 0 or len(y) != len(X):
        raise DataError(f"{name} of the loader has x of shape {X.shape} and y of shape {y.shape}: one y a row.")
    y = _class_numbers(y, name) if labels else _numbers(y, name)
    if row_shape is not None and X.shape[1:] != row_shape:
        raise DataError(f"{name} of the loader has rows of shape {X.shape[1:]}, where the first batch had {row_shape}.")
    if y_shape is not None and y.shape[1:] != y_shape:
        raise DataError(
            f"{name} of the loader has y of shape {y.shape}, where the first batch had {(len(y), *y_shape)}."
        )
    for what, values in (("x", X), ("y", y)):
        if values.dtype.kind == "f" and not bool(np.isfinite(values).all()):
            raise DataError(f"{name} of the loader has NaN or infinite (inf) values in {what}: drop these rows.")
    return X, y


def _class_numbers(y: NDArray[Any], name: str) -> NDArray[Any]:
    """Labels of a classifier."""
    if y.dtype.kind not in "iub":
        raise DataError(f"{name} of the loader has labels of type {y.dtype}: give whole numbers.")
    if y.ndim != 1:
        raise DataError(f"{name} of the loader has labels of shape {y.shape}: give one class number a row.")
    return y


def _numbers(y: NDArray[Any], name: str) -> NDArray[Any]:
    """Targets of a regressor."""
    if y.dtype.kind not in "iufbO":
        raise DataError(
            f"{name} of the loader has y of type {y.dtype}: a regressor needs numbers; for classes use a classifier."
        )
    if y.dtype.kind == "O":
        try:
            y = y.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{name} of the loader has y that is not numeric: a regressor needs numbers; for classes use a "
                "classifier."
            ) from error
    if y.ndim > 2 or y.size == 0 < len(y):
        raise DataError(f"{name} of the loader has y of shape {y.shape}: expected (b,) or (b, n_outputs).")
    return y


def first_pass(
    loader: Iterable[Any], *, labels: bool, seed: int, hold_out: bool = False, fingerprint: bool = False
) -> FirstPass:
    """Go through a loader once: count, scales, classes, and some rows drawn at random to start from.

    Args:
        loader: Yields pairs of rows and targets.
        labels: Whether targets are labels.
        seed: Of the rows that are kept.
        hold_out: Whether some rows are kept apart that are not to be trained on, chosen by their content.
        fingerprint: Whether all rows together, and the batches in this order, are to be told from others.
    """
    x_moments, y_moments = ColumnMoments(), ColumnMoments()
    generator = np.random.default_rng(seed)
    buffer = _Smallest(SUBSET_MOST + (MOST_HELD_OUT if hold_out else 0))
    classes: NDArray[Any] | None = None
    row_shape: tuple[int, ...] | None = None
    y_shape: tuple[int, ...] | None = None
    count, largest, together = 0, 0, 0
    order = hashlib.blake2b(digest_size=8)
    for number, item in enumerate(loader):
        X, y = read_pair(item, number, labels=labels, row_shape=row_shape, y_shape=y_shape)
        if not len(X):
            continue
        row_shape, y_shape = cast("tuple[int, ...]", X.shape[1:]), cast("tuple[int, ...]", y.shape[1:])
        largest, count = max(largest, len(X)), count + len(X)
        x_moments.add(X.swapaxes(0, 1).reshape(X.shape[1], -1).T if X.ndim == 4 else X)
        if labels:
            found = np.unique(y)
            classes = found if classes is None else np.union1d(classes, found)
        else:
            y_moments.add(y.reshape(len(y), -1))
        if fingerprint:
            own = content_keys(X, y)
            # A sum does not depend on the order.
            together = (together + int(own.sum(dtype=np.uint64))) % 2**64
            order.update(f"{len(own)} ".encode() + own.tobytes())
        # The rows with the smallest of independent random keys are a random sample of all.
        buffer.add(
            X, y, content_keys(X, y, seed) if hold_out else generator.integers(2**63, size=len(X), dtype=np.uint64)
        )
    if row_shape is None or y_shape is None or count < 2:
        rows = "no rows" if not count else "one row only"
        raise DataError(f"the loader yields {rows}: give more data, and a loader that can be gone through again.")
    kept_x, kept_y, keys = buffer.rows()
    held = _held_count(keys, count) if hold_out else 0
    rest = slice(held, held + SUBSET_MOST)
    return FirstPass(
        count - held,
        # What is left of a batch on average, once the rows that are held out are gone.
        round(largest * (count - held) / count),
        kept_x[rest],
        kept_y[rest],
        x_moments,
        None if labels else y_moments,
        classes,
        row_shape,
        y_shape,
        (kept_x[:held], kept_y[:held]) if held else None,
        keys[:held] if held else None,
        f"{count} {largest} {together}" if fingerprint else "",
        order.hexdigest() if fingerprint else "",
    )


def _held_count(keys: NDArray[np.uint64], rows: int) -> int:
    """How many of the rows with the smallest keys are held out: all that are equal to one of them with it."""
    wanted = held_out_rows(rows)
    if not wanted:
        return 0
    count = int(np.searchsorted(keys, keys[wanted - 1], side="right"))
    # Of rows that are nearly all alike none can be spared.
    return count if count <= 2 * wanted and count < len(keys) else 0


class _Smallest:
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


@dataclass(frozen=True)
class RegressionLoader:
    """A loader of rows and numbers, gone through once.

    Attributes:
        loader: Yields the batches to train on, and rows that `filter` leaves out.
        told: What the first pass told.
        held_out: Rows and targets that are kept from training, if any.
        filter: Takes them out of the batches, where the loader does not.
    """

    loader: Iterable[Any]
    told: FirstPass
    held_out: tuple[NDArray[Any], NDArray[Any]] | None
    filter: ContentFilter | None

    @classmethod
    def read(cls, loader: Iterable[Any], seed: int, *, hold_out: bool, fingerprint: bool = False) -> RegressionLoader:
        """Choose the rows that are kept from training, and go through the loader once.

        Args:
            loader: Yields pairs of rows and targets.
            seed: Of the rows that are kept, and of the passes.
            hold_out: Whether any are.
            fingerprint: As for `first_pass`.
        """
        split = split_by_position(loader, seed) if hold_out else None
        if split is None:
            loader = SeededPasses(loader, seed)
            told = first_pass(loader, labels=False, seed=seed, hold_out=hold_out, fingerprint=fingerprint)
            total = told.rows + (0 if told.held_keys is None else len(told.held_keys))
            kept = None if told.held_keys is None else ContentFilter(told.held_keys, seed, total)
            return cls(loader, told, told.held_out, kept)
        rest, held = SeededPasses(split[0], seed), split[1]
        told = first_pass(rest, labels=False, seed=seed, fingerprint=fingerprint)
        if held is None:
            return cls(rest, told, None, None)
        shapes = {"row_shape": told.row_shape, "y_shape": told.y_shape}
        pairs = [read_pair(item, None, labels=False, **shapes) for item in SeededPasses(held, seed)]
        X, y = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        return cls(rest, told, (X, y), None)

    def batches(
        self, scaler: Scaler, device: torch.device, network: torch.dtype, algebra: torch.dtype
    ) -> tuple[LoaderBatches, Batch | None]:
        """Training batches, scaled, and the rows that are kept from them for the noise.

        Args:
            scaler: Of rows and targets.
            device: Where to train.
            network: Precision of the rows.
            algebra: Precision of the targets.
        """
        told = self.told

        def scaled(X: NDArray[Any], y: NDArray[Any]) -> tuple[Tensor, Tensor]:
            rows = scaler.rows(np.asarray(X, dtype=np.float64))
            targets = scaler.targets(np.asarray(y, dtype=np.float64))
            return (
                torch.as_tensor(rows).to(device=device, dtype=network),
                torch.as_tensor(targets).to(device=device, dtype=algebra),
            )

        def convert(item: Any) -> tuple[Tensor, Tensor]:
            pair = read_pair(item, None, labels=False, row_shape=told.row_shape, y_shape=told.y_shape)
            return scaled(*(pair if self.filter is None else self.filter(*pair)))

        source = LoaderBatches(self.loader, convert, told.rows, max(2, told.batch_size), scaled(told.X, told.y))
        return source, None if self.held_out is None else Batch(*scaled(*self.held_out))
