"""How many threads a computation on the CPU gets: as many as help here and now, and what was set before comes back."""

from __future__ import annotations

import statistics
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

import torch

#: Below this many rows a step is made of operations too short to share.
_FEWEST_ROWS = 256

#: Largest matrix of the trial, and how often it is timed: a few milliseconds each.
_TRIAL_SIZE = 512
_TRIALS = 7

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
    generator = torch.Generator().manual_seed(0)
    square = torch.randn(size, size, generator=generator, dtype=torch.float64)
    matrix = square @ square.T + size * torch.eye(size, dtype=torch.float64)
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
    # The slowest quarter decides as much as the middle: waiting for a busy core shows there first.
    alone, together = (statistics.median(measured) + max(measured) for measured in times.values())
    return together * _WORTH_IT < alone
