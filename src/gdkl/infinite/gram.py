"""Gram matrices of any size: tiles that fit a cache and a memory budget, spread over cores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import joblib
import torch
from torch import Tensor

from gdkl.numerics import DEFAULT_BUDGET, OptionError, chunk_slices, require_memory

#: Called with the number of pairs done and the number of all pairs.
Progress = Callable[[int, int], None]

#: Numbers of an array of a tile: small enough that its arrays stay in a core's cache.
CACHE_NUMBERS = 2**16
#: Arrays of a tile's size that the recursion holds at a time.
ARRAYS = 16


class Tiles(Protocol):
    """Something that computes any part of a Gram matrix."""

    def tile(self, rows: slice, columns: slice) -> Tensor:
        """The covariances of some rows with some columns."""
        ...


@dataclass(frozen=True)
class Work:
    """How a Gram matrix is computed.

    Attributes:
        memory: Bytes that the work may take beside the matrix itself.
        n_jobs: Tiles at a time; None for one a core.
        progress: Told after every tile how far the work is.
    """

    memory: int = DEFAULT_BUDGET
    n_jobs: int | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.memory < 1:
            raise OptionError(f"memory must be a positive number of bytes; got {self.memory!r}.")
        if self.n_jobs is not None and self.n_jobs < 1:
            raise OptionError(f"n_jobs must be at least 1, or None for one a core; got {self.n_jobs!r}.")

    def jobs(self, device: torch.device) -> int:
        """Tiles at a time on a device."""
        if device.type != "cpu":
            return 1
        return self.n_jobs if self.n_jobs is not None else torch.get_num_threads()

    def side(self, numbers_per_pair: int, dtype: torch.dtype, device: torch.device) -> int:
        """Rows and columns of a tile.

        Raises:
            MemoryLimitError: If not even one pair fits.
        """
        pair = numbers_per_pair * ARRAYS * dtype.itemsize
        require_memory(
            pair,
            what="the covariance of one pair of images over all pairs of their pixels",
            remedy="Use smaller images, or Flatten() in place of pooling, which needs no pairs of pixels.",
            device=device,
        )
        numbers = CACHE_NUMBERS if device.type == "cpu" else 2**24
        allowed = self.memory // (ARRAYS * dtype.itemsize * self.jobs(device))
        return max(1, math.isqrt(max(1, min(numbers, allowed) // numbers_per_pair)))


def fill(
    tiles: Tiles, into: Any, diagonal: Tensor | None, *, side: int, work: Work, device: torch.device
) -> None:
    """Compute a Gram matrix tile by tile.

    Args:
        tiles: Computes each tile.
        into: A tensor or an array on disk, shape ``(n1, n2)``, that takes the result.
        diagonal: The diagonal of a symmetric matrix, of which only the upper half is computed; None where the
            matrix is not symmetric.
        side: Rows and columns of a tile.
        work: Cores and progress.
        device: Where the tiles are computed.
    """
    n1, n2 = into.shape
    parts = list(_parts(n1, n2, side, symmetric=diagonal is not None))
    total, done = n1 * n2, 0
    disk = not isinstance(into, Tensor)
    for (rows, columns), computed in zip(parts, _run(tiles, parts, work.jobs(device)), strict=True):
        block = computed
        if diagonal is not None and rows == columns:
            upper = block.triu(1)
            block = upper + upper.T + torch.diag(diagonal[rows])
        into[rows, columns] = block.cpu().numpy() if disk else block
        done += block.numel()
        if diagonal is not None and rows != columns:
            into[columns, rows] = block.T.cpu().numpy() if disk else block.T
            done += block.numel()
        if work.progress is not None:
            work.progress(done, total)


def _parts(n1: int, n2: int, side: int, *, symmetric: bool) -> Iterator[tuple[slice, slice]]:
    for rows in chunk_slices(n1, side):
        for columns in chunk_slices(n2, side):
            if not symmetric or columns.start >= rows.start:
                yield rows, columns


def _run(tiles: Tiles, parts: list[tuple[slice, slice]], jobs: int) -> Iterator[Tensor]:
    """The tiles in order."""
    if jobs == 1 or len(parts) < 2:
        with torch.no_grad():
            for rows, columns in parts:
                yield tiles.tile(rows, columns)
        return
    # A few tiles make a task, so that handing tasks over costs nothing.
    share = max(1, min(16, len(parts) // (4 * jobs)))
    groups = [parts[start : start + share] for start in range(0, len(parts), share)]
    threads = torch.get_num_threads()
    try:
        parallel: Any = joblib.Parallel(n_jobs=jobs, prefer="threads", return_as="generator")
        for blocks in parallel(joblib.delayed(_task)(tiles, group) for group in groups):
            yield from blocks
    finally:
        torch.set_num_threads(threads)


def _task(tiles: Tiles, parts: list[tuple[slice, slice]]) -> list[Tensor]:
    """Some tiles, on one core."""
    torch.set_num_threads(1)
    with torch.no_grad():
        return [tiles.tile(rows, columns) for rows, columns in parts]
