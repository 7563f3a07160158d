"""The guide of a mini-batch: what it believes about one half of the batch given the other, in both directions.

Scale and noise are fitted once, on a subset of the rows. The Gram matrix of a batch is computed *online*, from the very
rows or (augmented) images of the batch, or picked from one *precomputed* over all rows, in memory or in a file.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from gdkl.gp import (
    NOISE_FLOOR,
    NOISE_START,
    ClassLikelihood,
    KernelFunction,
    LabelTargets,
    Marginals,
    label_targets,
)
from gdkl.gp.conditioning import floor_variance
from gdkl.guide.classes import ClassGuide, fit_class_guide
from gdkl.guide.guide import fit_guide
from gdkl.infinite import unchecked
from gdkl.numerics import DataError, OptionError, cholesky

_MATRIX_NAME = "the guide's kernel matrix"

#: Part of the rows that scale and noise are fitted on, with the fewest and the most.
SUBSET_PART, SUBSET_FEWEST, SUBSET_MOST = 0.05, 256, 4000


def subset_size(n: int) -> int:
    """Rows that the guide's two numbers are fitted on: 5 %, at least 256, at most 4000, never more than there are.

    Example:
        >>> [subset_size(n) for n in (100, 1000, 45730, 600_000)]
        [100, 256, 2286, 4000]
    """
    return min(n, max(SUBSET_FEWEST, min(SUBSET_MOST, round(SUBSET_PART * n))))


class GramSource(Protocol):
    """Where the guide's covariances of a batch come from."""

    def gram(self, rows: Tensor, index: Tensor | None) -> Tensor:
        """Covariances ``(b, b)`` of rows ``(b, d)``, whose positions in the training set are ``index`` if known."""
        ...


@dataclass(frozen=True)
class OnlineGram:
    """The kernel of the rows as they are in the batch: nothing is stored, and augmentation stays exact."""

    kernel: KernelFunction

    def gram(self, rows: Tensor, index: Tensor | None) -> Tensor:
        """Evaluate the kernel; on a GPU without a look at the values, which every step would have to wait for."""
        with unchecked() if rows.is_cuda else nullcontext():
            return self.kernel.gram(rows)


class PrecomputedGram:
    """Covariances picked from the Gram matrix of all training rows.

    Args:
        matrix: ``(n, n)``: a tensor, an array, or a memory-mapped one, of which only what a batch needs is read.

    Example:
        >>> source = PrecomputedGram(np.arange(9.0).reshape(3, 3))
        >>> source.gram(torch.zeros(2, 1, dtype=torch.float64), torch.tensor([2, 0]))
        tensor([[8., 6.],
                [2., 0.]], dtype=torch.float64)
    """

    def __init__(self, matrix: Tensor | np.ndarray[Any, Any]):
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise DataError(f"a precomputed Gram matrix must be square; got shape {tuple(matrix.shape)}.")
        self.matrix = matrix

    def gram(self, rows: Tensor, index: Tensor | None) -> Tensor:
        """Pick the rows and columns of the batch."""
        if index is None:
            raise OptionError("a precomputed Gram matrix needs rows with known positions: compute the guide online.")
        if isinstance(self.matrix, Tensor):
            place = index.to(self.matrix.device)
            return self.matrix.index_select(0, place).index_select(1, place).to(rows.device)
        wanted = index.cpu().numpy()
        # A file is read in the order in which it lies there.
        order = np.argsort(wanted, kind="stable")
        back = np.argsort(order, kind="stable")
        ascending = wanted[order]
        lines = np.stack([np.asarray(self.matrix[int(row)])[ascending] for row in ascending])
        return torch.as_tensor(lines[np.ix_(back, back)], device=rows.device)


@dataclass(frozen=True)
class BatchGuide:
    """A Gaussian process over batches of rows with fixed output scales and noises.

    Attributes:
        source: Where covariances come from.
        normaliser: What they are divided by, the mean variance of the training rows.
        scale: Output scale over the normalised Gram, ``(outputs,)``.
        noise: Noise variance, ``(outputs,)``.
        log_evidence: Log evidence a row of the subset, ``(outputs,)``.
    """

    source: GramSource
    normaliser: float
    scale: Tensor
    noise: Tensor
    log_evidence: Tensor

    @torch.no_grad()
    def posterior(self, rows: Tensor, targets: Tensor, index: Tensor | None = None) -> Marginals:
        """Latent marginals of each half of a batch given the other.

        Args:
            rows: ``(b, d)``, b even: the first half and the second.
            targets: ``(outputs, b)``, in the precision of the algebra.
            index: Positions of the rows in the training set, for a precomputed Gram.

        Returns:
            Means and variances ``(1, outputs, b)``.
        """
        gram = self.source.gram(rows, index).to(targets) / self.normaliser
        ratio = (self.noise / self.scale).to(targets)
        p = both_halves(gram, targets, ratio[:, None].expand(targets.shape))
        return Marginals(p.mean[None], (self.scale.to(targets)[:, None] * p.variance)[None])


@dataclass(frozen=True)
class ClassBatchGuide:
    """A Gaussian process a class over batches of rows, on Dirichlet targets or ±1.

    Attributes:
        source: Where covariances come from.
        normaliser: What they are divided by.
        scale: Output scale over the normalised Gram, shared by the classes.
        noise: Noise variance beside that of the labels.
        n_classes: Number of classes.
        likelihood: How labels become targets.
        label_noise: Whether a half's labels carry their own variances. Without them one factorisation does for all
            classes.
    """

    source: GramSource
    normaliser: float
    scale: float
    noise: float
    n_classes: int
    likelihood: ClassLikelihood = ClassLikelihood.DIRICHLET
    label_noise: bool = True

    def targets(self, labels: Tensor, dtype: torch.dtype) -> LabelTargets:
        """Targets of the latent functions and their variances, ``(classes, b)`` each."""
        return label_targets(labels, self.n_classes, self.likelihood, dtype)

    @torch.no_grad()
    def posterior(
        self, rows: Tensor, labels: Tensor, index: Tensor | None = None, dtype: torch.dtype = torch.float64
    ) -> Marginals:
        """Latent marginals of each half of a batch given the other's labels, ``(1, classes, b)``.

        Args:
            rows: ``(b, d)``, b even.
            labels: Class numbers, ``(b,)``.
            index: Positions of the rows in the training set, for a precomputed Gram.
            dtype: Precision of the algebra.
        """
        gram = self.source.gram(rows, index).to(dtype) / self.normaliser
        values, own = self.targets(labels, dtype)
        if self.label_noise and self.likelihood is ClassLikelihood.DIRICHLET:
            p = both_halves(gram, values, (own + self.noise) / self.scale)
        else:
            p = both_halves(gram, values, gram.new_full((1, gram.shape[-1]), self.noise / self.scale))
        return Marginals(p.mean[None], self.scale * p.variance.expand_as(p.mean)[None])


def both_halves(gram: Tensor, targets: Tensor, noise: Tensor) -> Marginals:
    """Marginals of each half of the rows given noisy targets on the other.

    Args:
        gram: ``(b, b)``, b even.
        targets: ``(outputs, b)``.
        noise: Of every row, ``(outputs, b)``, or ``(1, b)`` where one factorisation serves all outputs.

    Returns:
        Means ``(outputs, b)`` and variances ``(outputs or 1, b)``.

    Example:
        >>> p = both_halves(torch.ones(2, 2), torch.tensor([[1.0, 3.0]]), torch.ones(1, 2))
        >>> p.mean, p.variance
        (tensor([[1.5000, 0.5000]]), tensor([[0.5000, 0.5000]]))
    """
    b = gram.shape[-1]
    if b < 2 or b % 2:
        raise DataError(f"a batch is split into two equal halves: it needs an even number of rows; got {b}.")
    h = b // 2
    C = torch.stack([gram[:h, :h], gram[h:, h:]]).unsqueeze(1) + torch.diag_embed(
        torch.stack([noise[:, :h], noise[:, h:]])
    )
    # K₁₂ of the direction "given the first half", then of the other.
    across = torch.stack([gram[:h, h:], gram[h:, :h]]).unsqueeze(1)
    y = torch.stack([targets[:, :h], targets[:, h:]])
    # On a GPU a check of the factorisation would make every step wait; what fails is NaN and stops the loop.
    L = torch.linalg.cholesky_ex(C).L if C.is_cuda else cholesky(C, name=_MATRIX_NAME)
    shared = noise.shape[0] == 1
    # Targets of all outputs beside each other for a shared factor, one column each otherwise.
    right = y.mT.unsqueeze(1) if shared else y.unsqueeze(-1)
    solved = torch.linalg.solve_triangular(
        L, torch.cat([across.expand(*L.shape[:-2], h, h), right], dim=-1), upper=False
    )
    A, v = solved[..., :h], solved[..., h:]
    mean = (v.mT @ A).squeeze(1) if shared else (v.mT @ A).squeeze(-2)
    variances = gram.diagonal()
    prior = torch.stack([variances[h:], variances[:h]]).unsqueeze(1)
    variance = floor_variance(prior - A.square().sum(dim=-2), prior)
    # The second half was conditioned on the first: it comes first in the batch of two.
    return Marginals(*(torch.cat([value[1], value[0]], dim=-1) for value in (mean, variance)))


@torch.no_grad()
def fit_batch_guide(
    kernel: KernelFunction, rows: Tensor, targets: Tensor, *, noise_floor: float = NOISE_FLOOR
) -> BatchGuide:
    """Fit output scale and noise by evidence on a subset of the rows.

    Args:
        kernel: Kernel function of the guide.
        rows: The subset's inputs, ``(n, d)``.
        targets: Its targets, ``(outputs, n)``.
        noise_floor: Smallest noise variance allowed.
    """
    guide = fit_guide(kernel, rows.to(targets)[None], targets[None], noise_floor=noise_floor)
    parts = (guide.scale[0], guide.noise[0], guide.log_evidence[0])
    return BatchGuide(OnlineGram(kernel), float(guide.normaliser[0]), *parts)


@torch.no_grad()
def fit_class_batch_guide(
    kernel: KernelFunction,
    rows: Tensor,
    labels: Tensor,
    n_classes: int,
    *,
    likelihood: ClassLikelihood = ClassLikelihood.DIRICHLET,
    scale: float | None = None,
    noise: float = NOISE_START,
    label_noise: bool = False,
    seed: int = 0,
) -> ClassBatchGuide:
    """Normalise by the mean variance of a subset, and choose the scale by its held-out labels unless it is given.

    Args:
        kernel: Kernel function of the guide.
        rows: The subset's inputs, ``(n, d)``.
        labels: Its class numbers, ``(n,)``.
        n_classes: Number of classes.
        likelihood: How labels become targets.
        scale: Output scale over the normalised Gram; None to have it chosen.
        noise: Noise variance beside that of the labels, where the scale is given.
        label_noise: Whether a half's labels carry their own variances in training.
        seed: Of the halvings that the scale is chosen by.
    """
    if scale is not None:
        normaliser = float(kernel.diagonal(rows).double().mean())
        if not 0 < normaliser < float("inf"):
            raise DataError("the guide's kernel has no positive finite variance on the training rows.")
        return ClassBatchGuide(OnlineGram(kernel), normaliser, scale, noise, n_classes, likelihood, label_noise)
    fitted: ClassGuide = fit_class_guide(kernel, rows[None], labels[None], n_classes, likelihood=likelihood, seed=seed)
    return ClassBatchGuide(
        OnlineGram(kernel),
        float(fitted.normaliser[0]),
        float(fitted.scale[0]),
        float(fitted.noise[0]),
        n_classes,
        likelihood,
        label_noise,
    )
