"""CPU threads: how many dense algebra gets, and independent tasks shared by a pool of them.

Both depend on sizes and on the caller's own thread setting alone, never on a timing, so that equal seeds give equal
fits on a busy machine too. What the caller had set comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TypeVar, cast

import torch
from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

T = TypeVar("T")

#: Smallest matrix that several threads factorise. Torch's threads wait for each other after every operation: where
#: something else takes the cores, a search over matrices of 400 rows takes up to fifty times as long as with one.
_SMALLEST = 512
#: Training loops take that risk from here on: on idle cores two threads take a third off a guided step of 455 rows. Who
#: runs many fits at once gives each process one thread (OMP_NUM_THREADS=1).
TRAINING_SMALLEST = 200
#: Fewest rows of fits whose independent parts (folds, members) threads share. Two idle cores gain 7 % at
#: 300 rows, 30 % at 500 and nothing at 200, where it takes three times as long if other work has the cores.
SHARED_SMALLEST = 300

#: Contexts that have changed torch's threads and have not ended, and what the first of them found.
_CHANGED = {"contexts": 0, "before": 0}
_LOCK = Lock()

_POOL: ContextVar[ThreadPoolExecutor | None] = ContextVar("thread pool", default=None)


def threads_for(size: int, smallest: int = _SMALLEST) -> int:
    """Threads for dense algebra with matrices of this many rows: one if they are small, else all that torch may use.

    Example:
        >>> threads_for(100)
        1
    """
    return torch.get_num_threads() if size >= smallest else 1


@contextmanager
def limit_threads(size: int, smallest: int = _SMALLEST) -> Generator[None]:
    """Use `threads_for` matrices of this size inside the context, and restore what was set before.

    Example:
        >>> before = torch.get_num_threads()
        >>> with limit_threads(100):
        ...     torch.get_num_threads()
        1
        >>> torch.get_num_threads() == before
        True
    """
    with _torch_threads(threads_for(size, smallest)):
        yield


@contextmanager
def _torch_threads(count: int) -> Generator[None]:
    """Set torch's threads inside the context.

    The setting is one of each thread, and threads that start later begin with what was set last in any. So the last of
    several contexts at the same time restores what the first found: a thread that began in between knows no better.
    """
    before = torch.get_num_threads()
    with _LOCK:
        if _CHANGED["contexts"] == 0:
            _CHANGED["before"] = before
        _CHANGED["contexts"] += 1
    torch.set_num_threads(count)
    try:
        yield
    finally:
        with _LOCK:
            _CHANGED["contexts"] -= 1
            torch.set_num_threads(before if _CHANGED["contexts"] else _CHANGED["before"])


@contextmanager
def thread_pool(threads: int) -> Generator[None]:
    """Let `thread_map` share its tasks among threads inside the context.

    Torch's own threads share single operations and wait for each other after each; whole tasks of some milliseconds
    are shared with next to no loss. So torch and NumPy have one thread per task inside the context.

    Example:
        >>> with thread_pool(2):
        ...     thread_map(3, lambda index: 10 * index)
        [0, 10, 20]
    """
    if threads < 2:
        yield
        return
    with (
        _torch_threads(1),
        ThreadPoolExecutor(threads, "thread_map", initializer=torch.set_num_threads, initargs=(1,)) as pool,
        cast("AbstractContextManager[object]", threadpool_limits(limits=1, user_api="blas")),
    ):
        token = _POOL.set(pool)
        try:
            yield
        finally:
            _POOL.reset(token)


def thread_map(count: int, work: Callable[[int], T]) -> list[T]:
    """Results of ``work(0) … work(count − 1)`` in this order, computed by the threads of `thread_pool` if there are.

    Gradients are recorded where the caller records them. The first error is raised once no task is running.

    Example:
        >>> thread_map(3, lambda index: index**2)
        [0, 1, 4]
    """
    pool = _POOL.get()
    if pool is None or count < 2:
        return [work(index) for index in range(count)]
    gradients = torch.is_grad_enabled()

    def task(index: int) -> T:
        # Whether gradients are recorded is a setting of each thread.
        with torch.set_grad_enabled(gradients):
            return work(index)

    futures = [pool.submit(task, index) for index in range(count)]
    wait(futures)
    return [future.result() for future in futures]
