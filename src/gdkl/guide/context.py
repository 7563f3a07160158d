"""Two disjoint contexts that are factorised once, so that every training row has marginals given rows without it.

On the other half of a batch of 512 the guide sees 256 rows, far fewer than the student learns from, and a student that
follows it is held back. Rows of a table are not augmented, so the guide's marginals on them can be precomputed from
some thousand rows each. A step then costs no more than without a guide.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

#: Rows of a context at most, and how many training rows there must be for each of its rows.
CONTEXT_MOST, ROWS_PER_CONTEXT_ROW = 2000, 3

#: Entries that the kernel matrices of a context may have, those of all outputs together. A row takes two operations per
#: entry: with a matrix of 2000 rows for each of ten classes, 600,000 rows would take half an hour.
_MOST_ENTRIES = 2**23


def context_size(n: int, outputs: int = 1) -> int:
    """Rows of each of the two contexts.

    Example:
        >>> [context_size(n) for n in (90, 3000, 600_000)], context_size(600_000, outputs=100)
        ([30, 1000, 2000], 289)
    """
    return min(CONTEXT_MOST, max(1, n // ROWS_PER_CONTEXT_ROW), math.isqrt(_MOST_ENTRIES // outputs))


def two_contexts(n: int, size: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Positions of each context's rows, and of those whose marginals are given it: half of all, none of its own.

    Example:
        >>> [(len(context), len(others)) for context, others in two_contexts(9, 3, seed=0)]
        [(3, 5), (3, 4)]
    """
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    contexts = order[:size], order[size : 2 * size]
    given_first = torch.zeros(n, dtype=torch.bool)
    given_first[order[2 * size :: 2]] = True
    given_first[contexts[1]] = True
    others = (torch.nonzero(rows).squeeze(-1) for rows in (given_first, ~given_first))
    return [(context.sort().values, rows) for context, rows in zip(contexts, others, strict=True)]
