"""Passes over a user's loader: repeatable orders, and rows that are left out of every pass.

Rows of a Dataset have positions, and a DataLoader over one is rebuilt without some of them. Batches of a list or of an
`IterableDataset` come in any order, without positions: there a keyed hash of a row's content decides, so that the same
row is left out at every pass.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Sampler

from gdkl.calibration import held_out_count
from gdkl.numerics import DataError, DataWarning, chunk_slices
from gdkl.training import OwnRandomNumbers

#: Rows that are read at a time.
_PART_ROWS = 512


class SeededPasses:
    """A loader whose passes draw from random numbers of our own: one order per pass, the same for the same seed.

    A DataLoader, its samplers and its Dataset draw from the global generators unless they were given their own. During
    a pass these are ours, so that neither the loader nor the user's random numbers are changed by a fit.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> def orders(seed):
        ...     passes = SeededPasses(DataLoader(range(9), batch_size=None, shuffle=True), seed)
        ...     return list(passes), list(passes)
        >>> orders(0) == orders(0), orders(0)[0] == orders(0)[1]
        (True, False)
    """

    def __init__(self, loader: Iterable[Any], seed: int):
        self._loader, self._seed = loader, seed
        self._begun = 0

    def __iter__(self) -> Iterator[Any]:
        """What the loader yields, in a new pass."""
        numbers = OwnRandomNumbers(self._seed, self._begun)
        self._begun += 1
        try:
            with numbers:
                running = iter(self._loader)
            while True:
                # What is done with a batch is outside: it draws from the generators as they were.
                with numbers:
                    try:
                        item = next(running)
                    except StopIteration:
                        return
                yield item
        except RuntimeError as error:
            # What torch says when it stacks them, in this process or in a worker.
            if "stack expects each tensor to be equal size" not in str(error) and "resize storage" not in str(error):
                raise
            raise DataError("the Dataset yields rows or targets of different shapes: make them all alike.") from error


class _Without(Sampler[Any]):
    """The positions of another sampler, or its batches of them, less some."""

    def __init__(self, positions: Iterable[Any], left_out: set[int]):
        self._positions, self._left_out = positions, left_out

    def __iter__(self) -> Iterator[Any]:
        for one in self._positions:
            if isinstance(one, (list, tuple)):
                if kept := [position for position in cast("list[int]", one) if position not in self._left_out]:
                    yield kept
            elif one not in self._left_out:
                yield one


def split_by_position(loader: Iterable[Any], seed: int) -> tuple[Iterable[Any], Iterable[Any] | None] | None:
    """A loader without some rows, and one of these rows; None for all but a DataLoader over rows with positions."""
    # A class derived from DataLoader may yield what it likes.
    if type(loader) is not DataLoader or isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        return None
    batches = cast("Iterable[list[int]]", loader.batch_sampler)
    try:
        # Asking for positions reads no rows.
        passes = SeededPasses(batches, seed)
        positions = np.fromiter((position for batch in passes for position in batch), dtype=np.int64)
    except (TypeError, ValueError):
        return None
    count = held_out_count(len(positions))
    if not count:
        return loader, None
    # A sampler may yield a row several times. The same rows are held out whatever the order in which they came.
    held = np.unique(np.random.default_rng(seed).permutation(np.sort(positions))[:count])
    left_out = set(held.tolist())
    if type(loader.batch_sampler) is BatchSampler:
        sampler = loader.batch_sampler
        rest: Any = BatchSampler(_Without(sampler.sampler, left_out), sampler.batch_size, sampler.drop_last)
    else:
        rest = _Without(batches, left_out)
    parts = [held[part].tolist() for part in chunk_slices(len(held), _PART_ROWS)]
    return _like(loader, rest), _like(loader, parts)


def _like(loader: DataLoader[Any], batches: Any) -> Iterable[Any]:
    """The same loader with other positions."""
    same = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
    more = ("generator", "prefetch_factor", "persistent_workers")
    options = {name: getattr(loader, name) for name in (*same, *more)}
    return DataLoader(loader.dataset, batch_sampler=batches, **options)


def content_keys(X: NDArray[Any], y: NDArray[Any], seed: int = 0) -> NDArray[np.uint64]:
    """One number per row that its content alone decides, as good as random: equal rows have equal numbers.

    Example:
        >>> X, y = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]), np.array([0.0, 0.0, 0.0])
        >>> one, two, three = content_keys(X, y)
        >>> bool(one == three), bool(one == two)
        (True, False)
    """
    if not len(X):
        return np.empty(0, dtype=np.uint64)
    key = seed.to_bytes(8, "little")
    # Adding zero makes a negative zero a positive one, to which it is equal.
    values = [np.ascontiguousarray(np.asarray(part, dtype=np.float64).reshape(len(X), -1) + 0.0) for part in (X, y)]
    digests = (
        hashlib.blake2b(one.tobytes() + other.tobytes(), digest_size=8, key=key).digest()
        for one, other in zip(*values, strict=True)
    )
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


class ContentFilter:
    """Leaves out rows by their content (see `content_keys`), and notices when they do not come again."""

    def __init__(self, held: NDArray[np.uint64], seed: int, rows: int):
        self._held, self._seed, self._rows = held, seed, rows
        self._seen, self._met = 0, set[int]()

    def __call__(self, X: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The rows that are trained on."""
        keys = content_keys(X, y, self._seed)
        known = np.isin(keys, self._held)
        if self._seen < self._rows:
            self._seen += len(keys)
            self._met.update(keys[known].tolist())
        return X[~known], y[~known]

    def warn_if_missed(self) -> None:
        """Warn if a whole pass went by and most of the rows were not met again."""
        if self._seen >= self._rows and 2 * len(self._met) < len(np.unique(self._held)):
            warnings.warn(
                "the loader yields other rows each time it is gone through, so none could be held out and "
                "predictions may be overconfident: pass a Dataset, or a DataLoader over one.",
                DataWarning,
                stacklevel=4,
            )
