"""Chunked evaluation: a long computation over rows in pieces that fit a memory budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from gdkl.numerics.errors import OptionError
from gdkl.numerics.memory import is_out_of_memory, named_memory_errors

#: Peak bytes that one chunk of a prediction may take by default.
DEFAULT_BUDGET = 256 * 2**20


def rows_per_chunk(bytes_per_row: int, budget: int = DEFAULT_BUDGET) -> int:
    """Largest number of rows whose work fits the budget, at least one.

    Example:
        >>> rows_per_chunk(bytes_per_row=1024, budget=10 * 1024)
        10
    """
    if bytes_per_row < 1 or budget < 1:
        raise OptionError(f"bytes_per_row and budget must be at least 1; got {bytes_per_row} and {budget}.")
    return max(1, budget // bytes_per_row)


def chunk_slices(n_rows: int, chunk_size: int) -> Iterator[slice]:
    """Consecutive slices that cover ``range(n_rows)``; the last one may be shorter.

    Example:
        >>> list(chunk_slices(5, 2))
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    if chunk_size < 1:
        raise OptionError(f"chunk_size must be at least 1; got {chunk_size}.")
    # Not a generator function: a wrong size is reported where it is passed, not at the first step.
    return (slice(start, min(start + chunk_size, n_rows)) for start in range(0, n_rows, chunk_size))


def map_rows(
    function: Callable[[Tensor], tuple[Tensor, ...]], rows: Tensor, chunk_size: int, *, row_dim: int
) -> tuple[Tensor, ...]:
    """Apply a row-wise function to chunks of rows ``(n, ...)`` and join its results along their dimension of rows.

    A chunk for which there is no memory is tried again in halves, and so are those after it.

    Raises:
        MemoryLimitError: If there is none for a single row.

    Example:
        >>> map_rows(lambda part: (part**2,), torch.arange(5.0), chunk_size=2, row_dim=0)
        (tensor([ 0.,  1.,  4.,  9., 16.]),)
    """
    done, pieces = 0, list[tuple[Tensor, ...]]()
    while done < len(rows):
        part = rows[done : done + chunk_size]
        with named_memory_errors(what="a single row of a prediction", remedy="Free memory.", device=rows.device):
            try:
                pieces.append(function(part))
            except (MemoryError, RuntimeError) as error:
                if len(part) == 1 or not is_out_of_memory(error):
                    raise
                chunk_size = len(part) // 2
                continue
        done += len(part)
    if not pieces:
        return function(rows)
    return tuple(torch.cat(list(group), dim=row_dim) for group in zip(*pieces, strict=True))
