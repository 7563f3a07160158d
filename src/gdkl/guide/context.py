"""A guide that knows more than half a batch: what it believes about every training row, computed once.

On the other half of a batch of 512 the guide sees 256 rows, far fewer than the student learns from, and a student that
follows it is held back. Rows of a table are not augmented, so the guide's beliefs about them can be had before
training: two disjoint contexts of some thousand rows are factorised once, and every row is asked given a context that
it is not part of. A step then costs no more than without a guide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gdkl.gp import ClassLikelihood, LabelTargets, Marginals, label_targets
from gdkl.gp.conditioning import floor_variance
from gdkl.guide.batch import BatchGuide, ClassBatchGuide, GramSource, OnlineGram
from gdkl.numerics import OptionError, cholesky, chunk_slices, rows_per_chunk, tensor_bytes

_MATRIX_NAME = "the guide's kernel matrix"

#: Rows of a context at most, and how many training rows there must be for each of its rows.
CONTEXT_MOST, ROWS_A_CONTEXT_ROW = 2000, 3

#: Entries that the kernel matrices of a context may have, those of all outputs together. Asking a row takes two
#: operations an entry: with a matrix of 2000 rows for each of ten classes, 600,000 rows would take half an hour.
_MOST_ENTRIES = 2**23

#: From positions to rows ``(k, d)``, targets ``(outputs, k)`` and noise variances over the output scale, of that shape.
_Take = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


def context_size(n: int, outputs: int = 1) -> int:
    """Rows of each of the two contexts.

    Example:
        >>> [context_size(n) for n in (90, 3000, 600_000)], context_size(600_000, outputs=100)
        ([30, 1000, 2000], 289)
    """
    return min(CONTEXT_MOST, max(1, n // ROWS_A_CONTEXT_ROW), math.isqrt(_MOST_ENTRIES // outputs))


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
        return _pick(self.beliefs, index)


@dataclass(frozen=True)
class ClassContextGuide:
    """The same for labels: a Gaussian process a class.

    Attributes:
        beliefs: Latent marginals ``(classes, n)``.
        likelihood: How labels become targets.
    """

    beliefs: Marginals
    likelihood: ClassLikelihood

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.beliefs.mean.shape[0]

    def targets(self, labels: Tensor, dtype: torch.dtype) -> LabelTargets:
        """Targets of the latent functions and their variances, ``(classes, b)`` each."""
        return label_targets(labels, self.n_classes, self.likelihood, dtype)

    def posterior(
        self, rows: Tensor, labels: Tensor, index: Tensor | None = None, dtype: torch.dtype = torch.float64
    ) -> Marginals:
        """Beliefs about the rows of a batch, ``(1, classes, b)``; ``index`` says which they are."""
        return Marginals(*(value.to(dtype) for value in _pick(self.beliefs, index)))


def _pick(beliefs: Marginals, index: Tensor | None) -> Marginals:
    if index is None:
        raise OptionError("beliefs that were computed ahead need rows with known positions.")
    index = index.to(beliefs.mean.device)
    return Marginals(*(value.index_select(-1, index)[None] for value in beliefs))


def ask_contexts(guide: BatchGuide, take: Callable[[Tensor], tuple[Tensor, Tensor]], n: int, seed: int) -> ContextGuide:
    """Ask the guide about all training rows.

    Args:
        guide: Its kernel, scale and noise.
        take: From positions to rows ``(k, d)`` and targets ``(outputs, k)``.
        n: Number of training rows.
        seed: Of the contexts.
    """

    def with_noise(index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, targets = take(index)
        ratio = (guide.noise.to(targets) / guide.scale.to(targets))[:, None]
        return rows, targets, ratio.expand(targets.shape)

    beliefs = _ask(guide.source, guide.normaliser, guide.scale, with_noise, n, seed)
    return ContextGuide(beliefs, guide.noise)


def ask_class_contexts(
    guide: ClassBatchGuide, take: Callable[[Tensor], tuple[Tensor, Tensor]], n: int, seed: int, dtype: torch.dtype
) -> ClassContextGuide:
    """Ask the guide about all training rows; the labels of a context carry their own variances.

    Without them thousands of rows make a guide sure of what single labels say, where classes overlap, too.

    Args:
        guide: Its kernel, scale and noise.
        take: From positions to rows ``(k, d)`` and class numbers ``(k,)``.
        n: Number of training rows.
        seed: Of the contexts.
        dtype: Precision of the algebra.
    """

    def with_noise(index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, labels = take(index)
        values, own = guide.targets(labels, dtype)
        return rows, values, (own + guide.noise) / guide.scale

    scale = torch.full((guide.n_classes,), guide.scale, dtype=dtype)
    beliefs = _ask(guide.source, guide.normaliser, scale, with_noise, n, seed)
    return ClassContextGuide(Marginals(*(value.float() for value in beliefs)), guide.likelihood)


@torch.no_grad()
def _ask(source: GramSource, normaliser: float, scale: Tensor, take: _Take, n: int, seed: int) -> Marginals:
    """Latent marginals ``(outputs, n)`` of every row, each given the one of two contexts that it is not part of."""
    if not isinstance(source, OnlineGram):
        raise OptionError("contexts need a guide whose kernel can be evaluated.")
    if n < 1:
        raise OptionError("there are no rows to ask about.")
    kernel = source.kernel
    outputs = len(scale)
    size = context_size(n, outputs)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    contexts = order[:size], order[size : 2 * size]
    # Every other row is asked given one of the two; a context's own rows given the other.
    first = torch.zeros(n, dtype=torch.bool)
    first[order[2 * size :: 2]] = True
    first[contexts[1]] = True
    one = take(order[:1])[1]
    beliefs = Marginals(one.new_empty(outputs, n), one.new_empty(outputs, n))
    for context, asked in zip(contexts, (first, ~first), strict=True):
        rows, targets, noise = take(context.sort().values)
        scale = scale.to(targets)
        C = (source.gram(rows, None).to(targets) / normaliser).expand(outputs, -1, -1).clone()
        C.diagonal(dim1=-2, dim2=-1).add_(noise)
        L = cholesky(C, name=_MATRIX_NAME)
        alpha = torch.cholesky_solve(targets.unsqueeze(-1), L)
        # A product is several times as fast as a solve, and there are many rows.
        inverse = torch.linalg.solve_triangular(L, torch.eye(size, dtype=L.dtype, device=L.device), upper=False)
        positions = torch.nonzero(asked).squeeze(-1)
        chunk = rows_per_chunk(tensor_bytes(4 + 2 * outputs, size, dtype=targets.dtype))
        for part in chunk_slices(len(positions), chunk):
            index = positions[part]
            new = take(index)[0]
            across = kernel.cross(new, rows).to(targets) / normaliser
            prior = kernel.diagonal(new).to(targets) / normaliser
            reduction = (inverse @ across.mT).square().sum(dim=-2)
            place = index.to(targets.device)
            beliefs.mean[:, place] = (across @ alpha).squeeze(-1)
            beliefs.variance[:, place] = scale[:, None] * floor_variance(prior - reduction, prior)
    return beliefs
