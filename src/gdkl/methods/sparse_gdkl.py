"""Guided deep kernel learning for any number of rows: inducing points, and a guide on the halves of each batch.

The student's q(f) does not depend on the split, the guide's p(f) does: each batch is split in two, p of either half is
given the other, and the mean over all rows of the batch is ½(loss₁ + loss₂).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gdkl.calibration import most_probable_noise
from gdkl.gp import ClassLikelihood, Marginals
from gdkl.guide import Guide
from gdkl.methods.batch_guide import Surroundings
from gdkl.objectives import SOFTMAX_SAMPLES, ObjectiveValue, gaussian_term, guided, kl_term, softmax_term
from gdkl.training import (
    Batch,
    BatchSource,
    FittedModel,
    SparseDeepKernel,
    StudentOptions,
    fit_sparse,
    step_generator,
)


def fit_sparse_gdkl(
    source: BatchSource,
    guide: Guide,
    options: StudentOptions,
    *,
    beta: float = 0.1,
    surroundings: Surroundings | None = None,
    held_out: Batch | None = None,
) -> FittedModel:
    """Train a deep kernel with inducing points to agree with the guide on the rows of each batch.

    Args:
        source: Where batches come from.
        guide: Fitted on a subset of the rows; gives marginals on the halves of each batch, or on all rows beforehand.
        options: How the deep kernel is built and trained.
        beta: Weight of the KL term.
        surroundings: Points without labels, where the student follows the guide, too.
        held_out: Rows that are not in ``source``, which calibrate the noise of predictions; None to keep the learned.
    """

    def inputs(step: int, batch: Batch) -> tuple[Tensor, ...]:
        p = guide.batch_posterior(batch.rows, batch.targets, batch.index)
        return p if surroundings is None else (*p, *surroundings.draw(step, options))

    def loss(
        student: SparseDeepKernel, rows: Tensor, y: Tensor, mean: Tensor, variance: Tensor, *free: Tensor
    ) -> ObjectiveValue:
        q, q_free = student.marginals(torch.cat([rows, *free[:1]])).divide(len(rows))
        further = {}
        if surroundings is not None:
            further["kl_unlabelled"] = kl_term(q_free, Marginals(*free[1:])), surroundings.mu
        return guided(q, Marginals(mean, variance), gaussian_term(q, y[None], student.noise()), beta, **further)

    return fit_sparse(source, guide.outputs, options, loss, inputs, finish=calibrate_noise(held_out))


def fit_sparse_gdkl_classes(
    source: BatchSource, guide: Guide, options: StudentOptions, *, beta: float = 0.1
) -> FittedModel:
    """The same for labels: a softmax over sampled latents, and a Dirichlet guide; or a regression on ±1 per class.

    Args:
        source: Where batches of rows and class numbers come from.
        guide: One Gaussian process per class; as for `fit_sparse_gdkl`.
        options: How the deep kernel is built and trained.
        beta: Weight of the KL term, which is averaged over the classes.
    """
    dtype, softmax = options.algebra, guide.likelihood is ClassLikelihood.DIRICHLET

    def inputs(step: int, batch: Batch) -> tuple[Tensor, ...]:
        p = guide.batch_posterior(batch.rows, batch.targets, batch.index, dtype)
        return (*p, softmax_samples(batch, guide.outputs, options, step)) if softmax else p

    def loss(
        student: SparseDeepKernel, rows: Tensor, labels: Tensor, mean: Tensor, variance: Tensor, *base: Tensor
    ) -> ObjectiveValue:
        q, p = student.marginals(rows), Marginals(mean, variance)
        if softmax:
            return guided(q, p, softmax_term(q, labels.expand(options.members, -1), *base), beta)
        y = guide.read_targets(labels, dtype).values[None]
        return guided(q, p, gaussian_term(q, y, student.noise()), beta)

    return fit_sparse(source, guide.outputs, options, loss, inputs, learn_noise=not softmax)


def calibrate_noise(held_out: Batch | None) -> Callable[[SparseDeepKernel], None] | None:
    """What sets a trained student's noise to the one that makes held-out rows most probable; None without any."""
    if held_out is None:
        return None

    def assign(student: SparseDeepKernel) -> None:
        student.noise.assign(most_probable_noise(student.marginals(held_out.rows), held_out.targets[None]))

    return assign


def softmax_samples(batch: Batch, n_classes: int, options: StudentOptions, step: int) -> Tensor:
    """Standard normal numbers of one step, ``(samples, members, classes, b)``."""
    device = batch.rows.device
    generator = step_generator(options.seed, step, device, options.world.rank)
    shape = (SOFTMAX_SAMPLES, options.members, n_classes, batch.rows.shape[0])
    return torch.randn(shape, generator=generator, dtype=options.algebra, device=device)
