"""How many threads a computation on the CPU gets: as many as help here and now, and what was set before comes back."""

from __future__ import annotations

import statistics
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

import numpy as np
import torch
from torch import Tensor

from gdkl.numerics.pieces import one_blas_thread, shared_by_threads, side_by_side

#: Below this many rows a step is made of operations too short to share.
_FEWEST_ROWS = 256

#: Below this many rows two threads spend more on each other than they save.
_FEWEST_HALVED_ROWS = 200

#: Largest matrix of the trial, and how often it is timed: a few milliseconds each.
_TRIAL_SIZE = 512
_TRIALS = 7

#: The same for halves, which share the better the larger they are.
_HALVES_TRIAL_SIZE = 256

#: Several threads must be this much faster in the trial to be worth what they lose between long operations.
_WORTH_IT = 1.2


def threads_for(rows: int) -> int:
    """Threads for dense algebra over this many rows: one, or all that torch may use, whichever is faster here and now.

    On an idle machine several threads gain a third at some hundred rows. Where anything else computes they wait for
    each other at the end of every operation and a step takes ten times as long, so they are tried before they are
    taken. The answer is kept for the life of the process: with another number of threads sums are rounded in another
    order, and equal seeds should give equal fits.

    Args:
        rows: Number of rows; the answer is by its power of two.

    Example:
        >>> threads_for(100)
        1
    """
    most = torch.get_num_threads()
    if rows < _FEWEST_ROWS or most == 1:
        return 1
    return most if _several_are_faster(most, min(_TRIAL_SIZE, 2 ** (rows.bit_length() - 1))) else 1


def halves_pay(rows: int) -> bool:
    """Whether two threads that share a step by halves are faster here and now than one: tried as for `threads_for`.

    Args:
        rows: Number of rows; the answer is by its power of two.

    Example:
        >>> halves_pay(10)
        False
    """
    if rows < _FEWEST_HALVED_ROWS or torch.get_num_threads() == 1:
        return False
    return _halves_are_faster(min(_HALVES_TRIAL_SIZE, 2 ** (rows.bit_length() - 1)))


@contextmanager
def limit_threads(rows: int) -> Generator[None]:
    """Use `threads_for` this many rows inside the context, and give back what was set before.

    Example:
        >>> before = torch.get_num_threads()
        >>> with limit_threads(100):
        ...     torch.get_num_threads()
        1
        >>> torch.get_num_threads() == before
        True
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads_for(rows))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def _several_are_faster(most: int, size: int) -> bool:
    """Time the operations of a training step with one thread and with all, in turns."""
    square, matrix = _trial_matrices(size)
    times: dict[int, list[float]] = {1: [], most: []}
    try:
        # The first round wakes the threads and is not counted.
        for trial in range(_TRIALS + 1):
            for count, measured in times.items():
                torch.set_num_threads(count)
                started = time.perf_counter()
                factor = torch.linalg.cholesky_ex(matrix).L
                torch.linalg.solve_triangular(factor, square @ square, upper=False)
                if trial > 0:
                    measured.append(time.perf_counter() - started)
    finally:
        torch.set_num_threads(most)
    return _is_worth_it(times[1], times[most])


@cache
def _halves_are_faster(size: int) -> bool:
    """Time what the halves of a step do with one thread and with two, in turns."""
    square, matrix = _trial_matrices(size)
    factor = torch.linalg.cholesky(matrix)
    some = square[: len(square) // 2].contiguous()
    array = np.ascontiguousarray(some.numpy())

    def side() -> Generator[None]:
        for _ in range(3):
            solved = torch.linalg.solve_triangular(factor.mT, some, upper=True, left=False).numpy()
            for _ in range(2):
                np.maximum(array @ solved.T, 0)
            yield

    times: dict[int, list[float]] = {1: [], 2: []}
    with one_blas_thread(), shared_by_threads(2):
        for trial in range(_TRIALS + 1):
            for count, measured in times.items():
                started = time.perf_counter()
                side_by_side(side(), side(), alone=count == 1)
                if trial > 0:
                    measured.append(time.perf_counter() - started)
    # Threads that share halves sleep while they wait, so one slow trial is no bad sign.
    return _is_worth_it(*(sorted(measured)[:-1] for measured in times.values()))


def _trial_matrices(size: int) -> tuple[Tensor, Tensor]:
    """A random matrix and one that has a Cholesky factor."""
    generator = torch.Generator().manual_seed(0)
    square = torch.randn(size, size, generator=generator, dtype=torch.float64)
    return square, square @ square.T + size * torch.eye(size, dtype=torch.float64)


def _is_worth_it(alone: list[float], together: list[float]) -> bool:
    """Whether several threads won: the slowest trial decides as much as the middle, a busy core shows there first."""
    one, several = (statistics.median(measured) + max(measured) for measured in (alone, together))
    return several * _WORTH_IT < one
