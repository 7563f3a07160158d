"""How many threads torch uses for one operation."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from contextlib import contextmanager

import torch

#: How long an answer of `sharing_pays` holds, in seconds.
HOLDS = 1.0
_ANSWERS: dict[int, tuple[float, bool]] = {}


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
