"""How many threads a computation on the CPU gets: few rows want one, and whatever was set before comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

#: Rows from which dense algebra over them gains more from several threads than it loses. Below, a step is made of
#: operations of a few hundred microseconds: two threads save a tenth on an idle machine, and where anything else runs
#: they wait for each other and a step takes ten times as long (measured at 60 to 927 rows).
ROWS_FOR_THREADS = 1500


def threads_for(rows: int) -> int:
    """Threads for dense algebra over this many rows: by the number alone, so that equal seeds give equal fits.

    Example:
        >>> threads_for(500)
        1
    """
    return 1 if rows < ROWS_FOR_THREADS else torch.get_num_threads()


@contextmanager
def limit_threads(rows: int) -> Iterator[None]:
    """Use `threads_for` this many rows inside the context, and give back what was set before.

    Example:
        >>> before = torch.get_num_threads()
        >>> with limit_threads(500):
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
