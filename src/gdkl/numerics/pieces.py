"""Independent pieces of one computation: one after the other, or shared by threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any, Generic, TypeVar, cast

import torch
from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

T = TypeVar("T")

_Side = Generator[None]


class _Partner:
    """A thread that runs one side of `side_by_side` after another."""

    def __init__(self) -> None:
        self._sides: SimpleQueue[_Side | None] = SimpleQueue()
        # What each of the two says when it comes to a meeting: nothing, or what has gone wrong.
        self._there: SimpleQueue[BaseException | None] = SimpleQueue()
        self._back: SimpleQueue[BaseException | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="pieces-partner", daemon=True)
        self._thread.start()

    def run(self, own: _Side, other: _Side) -> None:
        """Run one side here and the other one there, and wait for both."""
        self._sides.put(other)
        failure = _meet(own, self._there, self._back)
        if failure is not None:
            raise failure

    def close(self) -> None:
        """End the thread."""
        self._sides.put(None)
        self._thread.join()

    def _work(self) -> None:
        torch.set_num_threads(1)
        with torch.no_grad():
            while (side := self._sides.get()) is not None:
                _meet(side, self._back, self._there)


def _meet(
    side: _Side, out: SimpleQueue[BaseException | None], back: SimpleQueue[BaseException | None]
) -> BaseException | None:
    """Run a side to its end or to the first failure of either, which is returned."""
    while True:
        done, failure = False, None
        try:
            next(side)
        except StopIteration:
            done = True
        except BaseException as error:  # Raised where both have stopped.
            failure = error
        out.put(failure)
        other = back.get()
        if failure is not None or other is not None:
            side.close()
            return failure or other
        if done:
            return None


class _Workers:
    """Threads beside the caller's, and the pieces that wait for one with nothing else to do."""

    def __init__(self, pool: ThreadPoolExecutor, threads: int, partner: _Partner):
        self.pool = pool
        self.threads = threads
        self.partner = partner
        self.aside: deque[SetAside[Any]] = deque()
        # Counts calls that want the threads: whoever works on what was set aside sees that it is time to stop.
        self.call = 0

    def help_out(self, call: int) -> bool:
        """Compute one of the pieces set aside, unless there is none or the threads are wanted again."""
        return call == self.call and any(pieces.take_one() for pieces in tuple(self.aside))


_WORKERS: ContextVar[_Workers | None] = ContextVar("workers", default=None)


@contextmanager
def one_blas_thread() -> Generator[None]:
    """Let NumPy's products run in the thread that asks for them, and give back what was set before.

    Example:
        >>> with one_blas_thread():
        ...     total = sum(range(10))
    """
    with cast("AbstractContextManager[object]", threadpool_limits(limits=1, user_api="blas")):
        yield


@contextmanager
def shared_by_threads(threads: int) -> Generator[None]:
    """Let `for_each` share its pieces among threads inside the context, each of which computes on its own.

    Torch's own threads share single operations and wait for each other after every one; pieces of some milliseconds
    are shared with next to no loss, and lose nothing where something else takes a core. So torch's threads are one
    inside the context, and NumPy's, and what was set before comes back.

    Args:
        threads: How many, the caller's among them.

    Example:
        >>> with shared_by_threads(2):
        ...     for_each(3, lambda index: 10 * index)
        [0, 10, 20]
    """
    if threads < 2:
        yield
        return
    before = torch.get_num_threads()
    with (
        ThreadPoolExecutor(threads - 1, "pieces", initializer=torch.set_num_threads, initargs=(1,)) as pool,
        one_blas_thread(),
    ):
        torch.set_num_threads(1)
        partner = _Partner()
        workers = _Workers(pool, threads - 1, partner)
        token = _WORKERS.set(workers)
        try:
            yield
        finally:
            _WORKERS.reset(token)
            workers.call += 1
            partner.close()
            torch.set_num_threads(before)


def for_each(count: int, work: Callable[[int], T]) -> list[T]:
    """Results of ``work(0) … work(count − 1)``, in this order, shared by threads inside `shared_by_threads`.

    A piece is computed in the same way whoever computes it, so results do not depend on the threads. No gradients are
    recorded. An error of a piece is raised once no other is running.

    Example:
        >>> for_each(3, lambda index: index**2)
        [0, 1, 4]
    """
    workers = _WORKERS.get()
    if workers is None or count < 2:
        with torch.no_grad():
            return [work(index) for index in range(count)]
    workers.call = call = workers.call + 1
    results: list[T | None] = [None] * count
    # Whoever is free takes the next piece; to advance an iterator over a range is one step of the interpreter.
    todo = iter(range(count))
    ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def take() -> None:
        with torch.no_grad():
            for index in todo:
                results[index] = work(index)

    def help_along() -> None:
        failure = None
        try:
            take()
        except BaseException as error:  # Raised where the results are wanted.
            failure = error
        ended.put(failure)
        with torch.no_grad():
            while workers.help_out(call):
                pass

    futures = [workers.pool.submit(help_along) for _ in range(min(workers.threads, count - 1))]
    failures: list[BaseException | None] = []
    try:
        take()
    finally:
        # A thread that has not come to begin is not waited for.
        begun = sum(not future.cancel() for future in futures)
        with torch.no_grad():
            while ended.qsize() < begun and workers.help_out(call):
                pass
        failures = [ended.get() for _ in range(begun)]
    for failure in failures:
        if failure is not None:
            raise failure
    return cast("list[T]", results)


class SetAside(Generic[T]):
    """Pieces that wait; see `set_aside`."""

    def __init__(self, count: int, work: Callable[[int], T]):
        self._todo = iter(range(count))
        self._work = work
        self._count = count
        self._found: dict[int, T] = {}
        self._failure: Exception | None = None
        self._taken = Semaphore(0)

    def take_one(self) -> bool:
        """Compute one of the pieces; false if there was none left."""
        index = next(self._todo, None)
        if index is None:
            return False
        try:
            self._found[index] = self._work(index)
        except Exception as error:  # Raised where the results are asked for.
            self._failure = error
        finally:
            self._taken.release()
        return True

    def results(self) -> list[T]:
        """All results in their order, once: what is left is computed now, by all threads."""
        workers = _WORKERS.get()
        if workers is not None and self in workers.aside:
            workers.aside.remove(self)
        left = list(self._todo)
        own = for_each(len(left), lambda place: self._work(left[place]))
        for _ in range(self._count - len(left)):
            self._taken.acquire()
        if self._failure is not None:
            raise self._failure
        self._found.update(zip(left, own, strict=True))
        return [self._found[index] for index in range(self._count)]


def set_aside(count: int, work: Callable[[int], T]) -> SetAside[T]:
    """Pieces for later, which threads compute that have nothing else to do after `for_each`.

    Five pieces for two threads leave one of them without work for the time of a piece, and all but the caller's have
    none between one call and the next. Outside `shared_by_threads` nothing is computed before it is asked for.

    Example:
        >>> later = set_aside(3, lambda index: 10 * index)
        >>> later.results()
        [0, 10, 20]
    """
    pieces = SetAside(count, work)
    workers = _WORKERS.get()
    if workers is not None:
        workers.aside.append(pieces)
    return pieces


def side_by_side(one: Generator[None], other: Generator[None], *, alone: bool = False) -> None:
    """Run two sides of one computation that meet wherever they yield, each as often as the other.

    By two threads inside `shared_by_threads`, else in turns: a side may read after a meeting what the other wrote
    before, and results are the same. No gradients are recorded. The first error of either is raised once both rest.

    Args:
        one: The caller's own side.
        other: The side of the other thread.
        alone: Whether the threads have other work, such as pieces of which this is one.

    Example:
        >>> found = []
        >>> def side(name):
        ...     found.append(name)
        ...     yield
        ...     found.append(2 * name)
        >>> side_by_side(side("a"), side("b"))
        >>> found
        ['a', 'b', 'aa', 'bb']
    """
    workers = _WORKERS.get()
    with torch.no_grad():
        if workers is not None and not alone:
            workers.call += 1
            workers.partner.run(one, other)
        else:
            for _ in zip(one, other, strict=True):
                pass
