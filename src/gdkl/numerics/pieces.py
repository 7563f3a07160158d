"""Independent pieces of one computation: one after the other, or shared by threads."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar, cast

import torch

T = TypeVar("T")


class _Workers(NamedTuple):
    pool: ThreadPoolExecutor
    threads: int


_WORKERS: ContextVar[_Workers | None] = ContextVar("workers", default=None)


@contextmanager
def shared_by_threads(threads: int) -> Generator[None]:
    """Let `for_each` share its pieces among threads inside the context, each of which computes on its own.

    Torch's own threads share single operations and wait for each other after every one; pieces of some milliseconds
    are shared with next to no loss, and lose nothing where something else takes a core. So torch's threads are one
    inside the context, and what was set before comes back.

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
    with ThreadPoolExecutor(threads - 1, "pieces", initializer=torch.set_num_threads, initargs=(1,)) as pool:
        torch.set_num_threads(1)
        token = _WORKERS.set(_Workers(pool, threads - 1))
        try:
            yield
        finally:
            _WORKERS.reset(token)
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
    results: list[T | None] = [None] * count
    # Whoever is free takes the next piece; to advance an iterator over a range is one step of the interpreter.
    todo = iter(range(count))

    def take() -> None:
        with torch.no_grad():
            for index in todo:
                results[index] = work(index)

    futures = [workers.pool.submit(take) for _ in range(min(workers.threads, count - 1))]
    try:
        take()
    finally:
        wait(futures)
    for future in futures:
        future.result()
    return cast("list[T]", results)
