"""Gram matrices of any size: tiles that fit a cache and a memory budget, spread over cores."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import joblib
import torch
from torch import Tensor

from gdkl.infinite.desk import Desk
from gdkl.infinite.parameters import whole_number
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

    def take_back(self, tile: Tensor) -> None:
        """A tile that is not needed any more, the memory of which may be used again."""
        ...


class Engine(Protocol):
    """Something that computes Gram matrices in parts."""

    def hands(self, work: Work) -> tuple[int, int]:
        """Tiles at a time, and cores that share the work within a tile."""
        ...

    def sides(self, work: Work) -> tuple[int, int]:
        """Rows and columns of a tile; of a symmetric matrix never more rows than columns."""
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


def checked_work(memory: Any, n_jobs: Any, progress: Progress | None) -> Work:
    """Checked options of the work on a matrix.

    Raises:
        OptionError: If one is not allowed.

    Example:
        >>> checked_work(1e6, None, None).memory
        1000000
    """
    if progress is not None and not callable(progress):  # pyright: ignore[reportUnnecessaryComparison]
        raise OptionError(f"progress must be a function of the pairs done and all pairs; got {progress!r}.")
    jobs = None if n_jobs is None else whole_number(n_jobs, "n_jobs", least=1)
    return Work(whole_number(memory, "memory", least=1), jobs, progress)


def fill(engine: Engine, into: Any, diagonal: Tensor | None, *, work: Work) -> None:
    """Compute a Gram matrix tile by tile.

    Args:
        engine: Computes the tiles.
        into: A tensor or an array on disk, shape ``(n1, n2)``, that takes the result.
        diagonal: The diagonal of a symmetric matrix, of which only the upper half is computed; None where the
            matrix is not symmetric.
        work: Cores and progress.
    """
    n1, n2 = into.shape
    symmetric, total, done = diagonal is not None, n1 * n2, 0

    def tell(entries: int) -> None:
        nonlocal done
        done += entries
        if work.progress is not None and entries > 0:
            work.progress(done, total)

    step = engine.rows_at_a_time(work)
    for rows, columns in _grid(n1, n2, (step, step)):
        if symmetric and columns.stop <= rows.start:
            continue
        with torch.no_grad():
            block = engine.block(rows, columns)
        shape, sides = (rows.stop - rows.start, columns.stop - columns.start), engine.sides(work)
        # A block on the diagonal takes the half above it; other blocks are whole.
        parts = list(_triangle(shape[0], sides) if symmetric and rows == columns else _grid(*shape, sides))
        corner = (rows.start, columns.start)
        _run(_Task(block, corner, into, diagonal), parts, *engine.hands(work), tell)


@dataclass(frozen=True)
class _Task:
    """Computes tiles of a block and puts them into the matrix."""

    block: Block
    corner: tuple[int, int]
    into: Any
    diagonal: Tensor | None

    def __call__(self, part: tuple[slice, slice]) -> int:
        """Do one tile; returns the number of entries that are known by it."""
        tile = self.block.tile(*part)
        entries = self.write(part, tile)
        self.block.take_back(tile)
        return entries

    def write(self, part: tuple[slice, slice], tile: Tensor) -> int:
        """Put a tile in its place, and its mirror image; returns the number of entries. The tile is used up."""
        rows, columns = (slice(s.start + by, s.stop + by) for s, by in zip(part, self.corner, strict=True))
        into = self.into
        if self.diagonal is None:
            _put(into, rows, columns, tile)
            return tile.numel()
        entries = 0
        if columns.start == rows.start:
            # The tile starts with a square on the diagonal, of which the upper half counts.
            height = rows.stop - rows.start
            square, tile = tile[:, :height], tile[:, height:]
            columns = slice(rows.stop, columns.stop)
            entries = square.numel()
            square = square.triu_(1)
            if isinstance(into, Tensor):
                # In place, as fresh memory would take longer than the copying.
                view = into[rows, rows]
                view.copy_(square.T).add_(square)
                view.diagonal().copy_(self.diagonal[rows])
            else:
                _put(into, rows, rows, square + square.T + torch.diag(self.diagonal[rows]))
        if tile.numel() > 0:
            _put(into, rows, columns, tile)
            _put(into, columns, rows, tile.T)
        return entries + 2 * tile.numel()


def _put(into: Any, rows: slice, columns: slice, values: Tensor) -> None:
    if isinstance(into, Tensor):
        into[rows, columns] = values
    else:
        into[rows, columns] = values.cpu().numpy()


def _grid(n1: int, n2: int, sides: tuple[int, int]) -> Iterator[tuple[slice, slice]]:
    """Parts that cover a matrix."""
    for rows in chunk_slices(n1, sides[0]):
        for columns in chunk_slices(n2, sides[1]):
            yield rows, columns


def _triangle(n: int, sides: tuple[int, int]) -> Iterator[tuple[slice, slice]]:
    """Parts that cover the upper half of a square matrix: bands of rows, each from the diagonal on."""
    for rows in chunk_slices(n, min(sides)):
        # As few parts, but of equal length; the first holds the whole square on the diagonal.
        length = n - rows.start
        side = max(rows.stop - rows.start, -(-length // -(-length // sides[1])))
        for columns in chunk_slices(length, side):
            yield rows, slice(rows.start + columns.start, rows.start + columns.stop)


def _run(task: _Task, parts: list[tuple[slice, slice]], jobs: int, cores: int, tell: Callable[[int], None]) -> None:
    """Do all parts, some at a time, and tell now and then how many entries are done since."""
    hands = max(1, min(jobs, len(parts)))
    if hands > 1:
        backend: Any = joblib.parallel.get_active_backend(prefer="threads")[0]
        if not isinstance(backend, joblib.parallel.ThreadingBackend):
            # A backend that the caller has chosen, such as a cluster's: tiles come back to be written here.
            parallel: Any = joblib.Parallel(n_jobs=jobs, return_as="generator")
            tiles = parallel(joblib.delayed(_tile)(task.block, part) for part in parts)
            for part, tile in zip(parts, tiles, strict=True):
                tell(task.write(part, tile))
            return
    crew = _Crew(task, parts)
    shared, going = max(cores, jobs // hands), True
    with Desk.at_hand(), torch.no_grad(), crew.helpers(hands - 1):
        while going:
            # Asked again and again, as other programs come and go while a large matrix is computed.
            with threads(shared if cores_meet_quickly(shared) else 1):
                going = crew.step()
            tell(crew.news())
    tell(crew.news())


def _tile(block: Block, part: tuple[slice, slice]) -> Tensor:
    """One tile, in any process."""
    with torch.no_grad():
        return block.tile(*part)


class _Crew:
    """Threads that take the next part as soon as they are free; the calling thread is one of them.

    Args:
        task: What to do with a part.
        parts: All parts.
    """

    def __init__(self, task: _Task, parts: list[tuple[slice, slice]]) -> None:
        self.task = task
        self.waiting = iter(parts)
        self.lock = threading.Lock()
        self.done, self.told = 0, 0
        self.stopped = False
        self.failures: list[BaseException] = []

    def step(self) -> bool:
        """Do one part; False if there is none left."""
        with self.lock:
            part = None if self.stopped else next(self.waiting, None)
        if part is None:
            return False
        entries = self.task(part)
        with self.lock:
            self.done += entries
        return True

    def news(self) -> int:
        """Entries done since this was asked last."""
        with self.lock:
            news, self.told = self.done - self.told, self.done
        return news

    @contextmanager
    def helpers(self, count: int) -> Generator[None]:
        """Let further threads work beside this one, until all is done or one of them fails."""
        inference = torch.is_inference_mode_enabled()

        def help_out() -> None:
            torch.set_num_threads(1)
            try:
                with torch.inference_mode(inference), torch.no_grad(), Desk.at_hand():
                    while self.step():
                        pass
            except BaseException as error:
                self.failures.append(error)
                self.stopped = True

        helpers = [threading.Thread(target=help_out, daemon=True) for _ in range(count)]
        for helper in helpers:
            helper.start()
        try:
            yield
        except BaseException:
            self.stopped = True
            raise
        finally:
            for helper in helpers:
                helper.join()
        if self.failures:
            raise self.failures[0]


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
    take a thousand times as long as the operation, and one core had better work alone.

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
            # Late meetings happen now and then; three are a habit.
            if late > 2:
                return False
    return True
