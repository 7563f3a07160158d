"""Gram matrices of any size: the interface of engines, and tiles that fit a cache and a memory budget."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeAlias

import joblib
import torch
from torch import Tensor

from gdkl.infinite.arrays import whole_number
from gdkl.numerics import DEFAULT_BUDGET, OptionError, chunk_slices, require_memory

#: Called with the number of pairs done and the number of all pairs.
Progress: TypeAlias = Callable[[int, int], None]
Part: TypeAlias = tuple[slice, slice]
#: Computes the covariances of some rows with some columns and hands them to a function, which must not keep them.
Tile: TypeAlias = Callable[[slice, slice, Callable[[Tensor], Any]], Any]

#: Numbers of an array of a tile: small enough that its arrays stay in a core's cache.
CACHE_NUMBERS = 2**16
#: The same where there is no cache to fit, but a device to fill.
DEVICE_NUMBERS = 2**24
#: Arrays of a tile's size that the recursion holds at a time.
ARRAYS = 16
#: How long an answer of `sharing_pays` holds, in seconds.
HOLDS = 1.0
_ANSWERS: dict[int, tuple[float, bool]] = {}


@dataclass(frozen=True)
class Work:
    """How a Gram matrix is computed: bytes beside it, tiles at a time (None for one per core), progress."""

    memory: int = DEFAULT_BUDGET
    n_jobs: int | None = None
    progress: Progress | None = None

    def jobs(self, device: torch.device) -> int:
        """Tiles at a time on a device."""
        if device.type != "cpu":
            return 1
        return self.n_jobs if self.n_jobs is not None else torch.get_num_threads()

    def side(self, numbers_per_pair: int, dtype: torch.dtype, device: torch.device) -> int:
        """Rows and columns of a tile, of at least one pair, which must fit the memory."""
        pair = numbers_per_pair * ARRAYS * dtype.itemsize
        require_memory(
            pair,
            what="the covariance of one pair of images over all pairs of their pixels",
            remedy="Use smaller images, or Flatten() in place of pooling, which needs no pairs of pixels.",
            device=device,
        )
        return max(1, math.isqrt(max(1, self.tile_numbers(dtype, device) // numbers_per_pair)))

    def tile_numbers(self, dtype: torch.dtype, device: torch.device, *, times: int = 1) -> int:
        """Numbers of an array of a tile, which may take so many times the cache's share."""
        numbers = times * CACHE_NUMBERS if device.type == "cpu" else DEVICE_NUMBERS
        return max(1, min(numbers, self.memory // (ARRAYS * dtype.itemsize * self.jobs(device))))

    def reporter(self, pairs: int, done: int = 0) -> Callable[[int], None]:
        """A function that takes the number of pairs just done and reports all that are done so far."""

        def report(new: int) -> None:
            nonlocal done
            done += new
            if self.progress is not None:
                self.progress(done, pairs)

        return report


def checked_work(memory: Any, n_jobs: Any, progress: Progress | None) -> Work:
    """Checked options of the work on a matrix."""
    if progress is not None and not callable(progress):  # pyright: ignore[reportUnnecessaryComparison]
        raise OptionError(f"progress must be a function of the pairs done and all pairs; got {progress!r}.")
    jobs = None if n_jobs is None else whole_number(n_jobs, "n_jobs", least=1)
    return Work(whole_number(memory, "memory", least=1), jobs, progress)


class Engine(ABC):
    """Computes the Gram matrix of two sets of inputs: the one interface of all engines."""

    @abstractmethod
    def diagonal(self, work: Work) -> Tensor:
        """The diagonal of the matrix of the first set with itself."""

    @abstractmethod
    def fill(self, into: Any, *, symmetric: bool, work: Work) -> None:
        """Compute the matrix into a tensor or an array on disk; of a symmetric one, half is computed."""


class TiledEngine(Engine):
    """An engine that computes tiles."""

    #: Whether cores share each operation of one tile, or take tiles of their own. Tiles of many short operations must
    #: be shared: Python lets one thread at a time pass between operations.
    shares_cores: ClassVar[bool] = False
    x1: Tensor
    x2: Tensor

    @abstractmethod
    def sides(self, work: Work) -> tuple[int, int]:
        """Rows and columns of a tile; of a symmetric matrix never more rows than columns."""

    @abstractmethod
    def block(self, rows: slice, columns: slice) -> Tile:
        """What computes tiles of a part of the matrix, by slices within it."""

    def block_rows(self, work: Work) -> int:
        """Rows and columns of a block, whose tiles share what is known of single inputs; all by default."""
        del work
        return max(1, self.x1.shape[0], self.x2.shape[0])

    def fill(self, into: Any, *, symmetric: bool, work: Work) -> None:
        """Compute the matrix tile by tile."""
        (n1, n2), step, sides = into.shape, self.block_rows(work), self.sides(work)
        diagonal = self.diagonal(work) if symmetric else None
        # An array on disk is written to through a tensor that shares its memory.
        matrix = into if isinstance(into, Tensor) else torch.from_numpy(into)
        report = work.reporter(n1 * n2)
        for rows, columns in _grid(n1, n2, (step, step)):
            if symmetric and columns.stop <= rows.start:
                continue
            shape = (rows.stop - rows.start, columns.stop - columns.start)
            # A block on the diagonal takes the half above it; other blocks are whole.
            parts = list(_triangle(shape[0], sides) if symmetric and rows == columns else _grid(*shape, sides))
            put = _Put(matrix, diagonal, (rows.start, columns.start))
            run = _shared if self.shares_cores else _in_parallel
            for entries in run(self.block(rows, columns), parts, put, work.jobs(self.x1.device)):
                report(entries)


@dataclass(frozen=True)
class _Put:
    """Puts tiles of a block into the matrix."""

    matrix: Tensor
    diagonal: Tensor | None
    corner: tuple[int, int]

    def __call__(self, part: Part, tile: Tensor) -> int:
        """Put a tile in its place, and its mirror image; returns the number of entries."""
        rows, columns = (slice(s.start + by, s.stop + by) for s, by in zip(part, self.corner, strict=True))
        if self.diagonal is None:
            self.matrix[rows, columns] = tile
            return tile.numel()
        entries = 0
        if columns.start == rows.start:
            # The tile starts with a square on the diagonal, of which the upper half counts.
            height = rows.stop - rows.start
            square, tile = tile[:, :height].triu_(1), tile[:, height:]
            columns = slice(rows.stop, columns.stop)
            entries = square.numel()
            view = self.matrix[rows, rows]
            view.copy_(square.T).add_(square.to(view.device))
            view.diagonal().copy_(self.diagonal[rows])
        if tile.numel() > 0:
            self.matrix[rows, columns] = tile
            self.matrix[columns, rows] = tile.T
        return entries + 2 * tile.numel()


def _grid(n1: int, n2: int, sides: tuple[int, int]) -> Iterator[Part]:
    """Parts that cover a matrix."""
    for rows in chunk_slices(n1, sides[0]):
        for columns in chunk_slices(n2, sides[1]):
            yield rows, columns


def _triangle(n: int, sides: tuple[int, int]) -> Iterator[Part]:
    """Parts that cover the upper half of a square matrix: bands of rows, each from the diagonal on."""
    for rows in chunk_slices(n, min(sides)):
        # As few parts, but of equal length; the first holds the whole square on the diagonal.
        length = n - rows.start
        side = max(rows.stop - rows.start, -(-length // -(-length // sides[1])))
        for columns in chunk_slices(length, side):
            yield rows, slice(rows.start + columns.start, rows.start + columns.stop)


def _shared(tile: Tile, parts: Sequence[Part], put: _Put, jobs: int) -> Iterator[int]:
    """Compute one part after another, each by all cores, and say after each how many entries it has."""
    for part in parts:
        with threads(jobs if sharing_pays(jobs) else 1):
            entries = tile(*part, partial(put, part))
        yield entries


def _in_parallel(tile: Tile, parts: Sequence[Part], put: _Put, jobs: int) -> Iterator[int]:
    """Compute several parts at a time, each by one core, and say after each how many entries it has."""
    workers = min(jobs, len(parts))
    if workers < 2:
        yield from _shared(tile, parts, put, jobs)
        return
    backend: Any = joblib.parallel.get_active_backend(prefer="threads")[0]
    if not isinstance(backend, joblib.parallel.ThreadingBackend):
        # A backend that the caller has chosen, such as a cluster's: tiles come back to be written here.
        parallel: Any = joblib.Parallel(n_jobs=jobs, return_as="generator")
        for part, values in zip(
            parts, parallel(joblib.delayed(_tile)(tile, part, Tensor.clone) for part in parts), strict=True
        ):
            yield put(part, values)
        return

    def one(part: Part) -> int:
        return _tile(tile, part, partial(put, part))

    # The results are closed on errors, which cancels what has not begun.
    with (
        threads(1),
        ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool,
        closing(pool.map(one, parts)) as results,  # pyright: ignore[reportArgumentType]
    ):
        yield from results


def _tile(tile: Tile, part: Part, use: Callable[[Tensor], Any]) -> Any:
    """One tile, in any thread or process."""
    with torch.no_grad():
        return tile(*part, use)


@contextmanager
def threads(count: int) -> Generator[None]:
    """Let torch use so many threads for one operation."""
    before = torch.get_num_threads()
    if before != count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if before != count:
            torch.set_num_threads(before)


def sharing_pays(count: int) -> bool:
    """Whether a short operation is worth sharing among cores just now, tried at most once per second.

    Cores that share an operation wait for each other at its end. Where other programs keep them busy that takes a
    hundred times as long as the operation, and one core had better work alone.
    """
    if count < 2:
        return True
    asked, answer = _ANSWERS.get(count, (-math.inf, True))
    if time.monotonic() - asked > HOLDS:
        answer = _is_fast(count)
        _ANSWERS[count] = (time.monotonic(), answer)
    return answer


def _is_fast(count: int) -> bool:
    """Whether at most two of eight shared operations are late."""
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
            if late > 2:
                return False
    return True
