"""A guide that knows more than half a batch: what it believes about every training row, computed once.

On the other half of a batch of 512 the guide sees 256 rows, far fewer than the student learns from, and a student that
follows it is held back. Rows of a table are not augmented, so the guide's beliefs about them can be had before
training: two disjoint contexts of some thousand rows are factorised once, and every row is asked given a context that
it is not part of. A step then costs no more than without a guide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gdkl.gp import Marginals
from gdkl.gp.conditioning import floor_variance
from gdkl.guide.batch import BatchGuide, OnlineGram
from gdkl.numerics import OptionError, cholesky, chunk_slices, rows_per_chunk, tensor_bytes

_MATRIX_NAME = "the guide's kernel matrix"

#: Rows of a context at most, and how many training rows there must be for each of its rows.
CONTEXT_MOST, ROWS_A_CONTEXT_ROW = 2000, 3


def context_size(n: int) -> int:
    """Rows of each of the two contexts.

    Example:
        >>> [context_size(n) for n in (90, 3000, 600_000)]
        [30, 1000, 2000]
    """
    return min(CONTEXT_MOST, max(1, n // ROWS_A_CONTEXT_ROW))


@dataclass(frozen=True)
class ContextGuide:
    """What the guide believes about each training row, given rows that it is not one of.

    Attributes:
        beliefs: Latent marginals ``(outputs, n)``.
        noise: The guide's noise variances, ``(outputs,)``.
    """

    beliefs: Marginals
    noise: Tensor

    def posterior(self, rows: Tensor, targets: Tensor, index: Tensor | None = None) -> Marginals:
        """Beliefs about the rows of a batch, ``(1, outputs, b)``; ``index`` says which they are."""
        if index is None:
            raise OptionError("beliefs that were computed ahead need rows with known positions.")
        index = index.to(self.beliefs.mean.device)
        return Marginals(*(value.index_select(-1, index)[None] for value in self.beliefs))


@torch.no_grad()
def ask_contexts(guide: BatchGuide, take: Callable[[Tensor], tuple[Tensor, Tensor]], n: int, seed: int) -> ContextGuide:
    """Ask the guide about all training rows.

    Args:
        guide: Its kernel, scale and noise.
        take: From positions to rows ``(k, d)`` and targets ``(outputs, k)``.
        n: Number of training rows.
        seed: Of the contexts.
    """
    if not isinstance(guide.source, OnlineGram):
        raise OptionError("contexts need a guide whose kernel can be evaluated.")
    kernel = guide.source.kernel
    size = context_size(n)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    contexts = order[:size], order[size : 2 * size]
    # Every other row is asked given one of the two; a context's own rows given the other.
    first = torch.zeros(n, dtype=torch.bool)
    first[order[2 * size :: 2]] = True
    first[contexts[1]] = True
    beliefs: Marginals | None = None
    for context, asked in zip(contexts, (first, ~first), strict=True):
        rows, targets = take(context.sort().values)
        scale, noise = guide.scale.to(targets), guide.noise.to(targets)
        C = (guide.source.gram(rows, None).to(targets) / guide.normaliser).expand(len(scale), -1, -1).clone()
        C.diagonal(dim1=-2, dim2=-1).add_((noise / scale)[:, None])
        L = cholesky(C, name=_MATRIX_NAME)
        alpha = torch.cholesky_solve(targets.unsqueeze(-1), L)
        # A product is several times as fast as a solve, and there are many rows.
        inverse = torch.linalg.solve_triangular(L, torch.eye(size, dtype=L.dtype, device=L.device), upper=False)
        if beliefs is None:
            beliefs = Marginals(targets.new_empty(len(scale), n), targets.new_empty(len(scale), n))
        positions = torch.nonzero(asked).squeeze(-1)
        chunk = rows_per_chunk(tensor_bytes(4 + 2 * len(scale), size, dtype=targets.dtype))
        for part in chunk_slices(len(positions), chunk):
            index = positions[part]
            new, _ = take(index)
            across = kernel.cross(new, rows).to(targets) / guide.normaliser
            prior = kernel.diagonal(new).to(targets) / guide.normaliser
            reduction = (inverse @ across.mT).square().sum(dim=-2)
            place = index.to(targets.device)
            beliefs.mean[:, place] = (across @ alpha).squeeze(-1)
            beliefs.variance[:, place] = scale[:, None] * floor_variance(prior - reduction, prior)
    if beliefs is None:
        raise OptionError("there are no rows to ask about.")
    return ContextGuide(beliefs, guide.noise)
