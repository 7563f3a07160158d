"""Gram matrices of any size: tiles that fit a cache and a memory budget, spread over cores."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
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
#: The same where there is no cache to fit, but a device to fill.
DEVICE_NUMBERS = 2**24
#: How long the answer of `cores_meet_quickly` holds.
MEMORY_SECONDS = 1.0
_MEETINGS: dict[int, tuple[float, bool]] = {}
#: Arrays of a tile's size that the recursion holds at a time.
ARRAYS = 16


class Block(Protocol):
    """Part of a Gram matrix, of which tiles can be computed."""

    def tile(self, rows: slice, columns: slice) -> Tensor:
        """The covariances of some rows with some columns of the block."""
        ...


class Engine(Protocol):
    """Something that computes Gram matrices in parts."""

    def spreads(self, work: Work) -> bool:
        """Whether the cores share the work within a tile, and not tile by tile."""
        ...

    def sides(self, work: Work) -> tuple[int, int]:
        """Rows and columns of a tile."""
        ...

    def diagonal(self, work: Work) -> Tensor:
        """The diagonal of the matrix of the first set with itself."""
        ...

    def rows_at_a_time(self, work: Work) -> int:
        """Rows and columns of a block, whose tiles share what is known of single inputs."""
        ...

    def block(self, rows: slice, columns: slice) -> Block:
        """A part of the matrix."""
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
        numbers = CACHE_NUMBERS if device.type == "cpu" else DEVICE_NUMBERS
        allowed = self.memory // (ARRAYS * dtype.itemsize * self.jobs(device))
        return max(1, math.isqrt(max(1, min(numbers, allowed) // numbers_per_pair)))


def fill(engine: Engine, into: Any, diagonal: Tensor | None, *, work: Work, device: torch.device) -> None:
    """Compute a Gram matrix tile by tile.

    Args:
        engine: Computes the tiles.
        into: A tensor or an array on disk, shape ``(n1, n2)``, that takes the result.
        diagonal: The diagonal of a symmetric matrix, of which only the upper half is computed; None where the
            matrix is not symmetric.
        work: Cores and progress.
        device: Where the tiles are computed.
    """
    n1, n2 = into.shape
    symmetric, total, done = diagonal is not None, n1 * n2, 0
    step = engine.rows_at_a_time(work)
    jobs, spreads = work.jobs(device), engine.spreads(work)
    for rows, columns in _parts(n1, n2, (step, step), symmetric=symmetric):
        with torch.no_grad():
            block = engine.block(rows, columns)
        # Within a block on the diagonal, tiles below it are left out; other blocks are whole.
        upper = symmetric and rows == columns
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        parts = list(_parts(*shape, engine.sides(work), symmetric=upper))
        with threads(jobs if spreads else 1):
            for (r, c), tile in zip(parts, _run(block, parts, 1 if spreads else jobs), strict=True):
                at_rows, at_columns = _moved(r, rows.start), _moved(c, columns.start)
                done += _write(into, tile, at_rows, at_columns, diagonal)
                if work.progress is not None:
                    work.progress(done, total)


def _write(into: Any, tile: Tensor, rows: slice, columns: slice, diagonal: Tensor | None) -> int:
    """Put a tile in its place, and its mirror image; returns the number of entries. The tile is used up."""
    if diagonal is None:
        _put(into, rows, columns, tile)
        return tile.numel()
    if columns.start >= rows.stop:
        _put(into, rows, columns, tile)
        _put(into, columns, rows, tile.T)
        return 2 * tile.numel()
    if rows == columns:
        # In place, as fresh memory would take longer than the copying.
        tile.triu_(1)
        if isinstance(into, Tensor):
            view = into[rows, columns]
            view.copy_(tile.T).add_(tile)
            view.diagonal().copy_(diagonal[rows])
        else:
            _put(into, rows, columns, tile + tile.T + torch.diag(diagonal[rows]))
        return tile.numel()
    # The tile touches the diagonal: of what lies on both sides, only the upper half counts.
    entries = 0
    for at in range(rows.start, rows.stop):
        first = max(at + 1, columns.start)
        if first < columns.stop:
            line = tile[at - rows.start, first - columns.start :]
            _put(into, slice(at, at + 1), slice(first, columns.stop), line[None, :])
            _put(into, slice(first, columns.stop), slice(at, at + 1), line[:, None])
            entries += 2 * line.numel()
        if columns.start <= at < columns.stop:
            _put(into, slice(at, at + 1), slice(at, at + 1), diagonal[at].reshape(1, 1))
            entries += 1
    return entries


def _put(into: Any, rows: slice, columns: slice, values: Tensor) -> None:
    if isinstance(into, Tensor):
        into[rows, columns] = values
    else:
        into[rows, columns] = values.cpu().numpy()


def _moved(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by)


def _parts(n1: int, n2: int, sides: tuple[int, int], *, symmetric: bool) -> Iterator[tuple[slice, slice]]:
    """Parts that cover a matrix, without those that lie below the diagonal of a symmetric one."""
    for rows in chunk_slices(n1, sides[0]):
        for columns in chunk_slices(n2, sides[1]):
            if not symmetric or columns.stop > rows.start:
                yield rows, columns


def _run(block: Block, parts: list[tuple[slice, slice]], jobs: int) -> Iterator[Tensor]:
    """The tiles in order."""
    if jobs == 1 or len(parts) < 2:
        for part in parts:
            yield from _task(block, [part])
        return
    # A few tiles make a task, so that handing tasks over costs nothing.
    share = max(1, min(16, len(parts) // (4 * jobs)))
    tasks = [parts[start : start + share] for start in range(0, len(parts), share)]
    backend: Any = joblib.parallel.get_active_backend(prefer="threads")[0]
    if isinstance(backend, joblib.parallel.ThreadingBackend):
        # Threads of our own start faster than joblib's; results are taken as they are needed, not piled up.
        with ThreadPoolExecutor(jobs, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            waiting: deque[Future[list[Tensor]]] = deque()
            for task in tasks:
                waiting.append(pool.submit(_task, block, task))
                if len(waiting) > 2 * jobs:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        return
    # A backend that the caller has chosen, such as a cluster's.
    parallel: Any = joblib.Parallel(n_jobs=jobs, return_as="generator")
    for tiles in parallel(joblib.delayed(_task)(block, task) for task in tasks):
        yield from tiles


def _task(block: Block, parts: list[tuple[slice, slice]]) -> list[Tensor]:
    """Some tiles, one after another."""
    with torch.no_grad():
        return [block.tile(rows, columns) for rows, columns in parts]


@contextmanager
def threads(count: int) -> Generator[None]:
    """Let torch use so many threads for one operation.

    Example:
        >>> with threads(1):
        ...     torch.get_num_threads()
        1
    """
    before = torch.get_num_threads()
    if before != count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if before != count:
            torch.set_num_threads(before)


def cores_meet_quickly(count: int) -> bool:
    """Whether an operation is worth sharing among cores just now.

    Cores that share an operation wait for each other at its end. Where other programs keep them busy that can
    take a thousand times as long as the operation, and each core had better work on its own.

    Example:
        >>> cores_meet_quickly(1)
        True
    """
    if count < 2:
        return True
    asked, answer = _MEETINGS.get(count, (-math.inf, True))
    if time.monotonic() - asked > MEMORY_SECONDS:
        answer = _meet_quickly(count)
        _MEETINGS[count] = (time.monotonic(), answer)
    return answer


def _meet_quickly(count: int) -> bool:
    """Try it."""
    array = torch.ones(2**17)

    def seconds() -> float:
        start = time.perf_counter()
        array.mul_(1.0)
        return time.perf_counter() - start

    with threads(1):
        alone = sorted(seconds() for _ in range(9))[4]
    late = 0
    with threads(count):
        seconds()
        for _ in range(8):
            late += seconds() > 4 * alone
            # One late meeting may happen; two are a habit.
            if late > 1:
                return False
    return True
