"""Guided deep kernel learning for any number of rows: inducing points, and a guide on the halves of each batch.

The student's beliefs q(f) do not depend on the split, the guide's do: each batch is split in two, the guide answers for
either half given the other, and the mean over all rows of the batch is ½(loss₁ + loss₂).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gdkl.gp import ClassLikelihood, Marginals
from gdkl.guide import Guide
from gdkl.methods.fitted import FittedModel
from gdkl.methods.sparse_deep_kernel import SparseDeepKernel, SparseOptions, train_sparse_deep_kernel
from gdkl.objectives import SOFTMAX_SAMPLES, ObjectiveValue, gaussian_term, guided, softmax_term
from gdkl.training import Batch, BatchSource, step_generator


def fit_sparse_gdkl(
    source: BatchSource,
    guide: Guide,
    options: SparseOptions,
    *,
    beta: float = 0.1,
    held_out: Batch | None = None,
) -> FittedModel:
    """Train a deep kernel with inducing points to agree with the guide on the rows of each batch.

    Args:
        source: Where batches come from.
        guide: Fitted on a subset of the rows; asked about the halves of each batch, or about all rows ahead.
        options: How the deep kernel is built and trained.
        beta: Weight of the KL term.
        held_out: Rows that are not in ``source``, which the noise of predictions comes from; None to keep the learned.
    """

    def prepare(step: int, batch: Batch) -> Marginals:
        return guide.batch_posterior(batch.rows, batch.targets, batch.index)

    def make_loss(model: SparseDeepKernel) -> Callable[..., ObjectiveValue]:
        def loss(rows: Tensor, targets: Tensor, *p: Tensor) -> ObjectiveValue:
            q = model.marginals(rows)
            return guided(q, Marginals(*p), gaussian_term(q, targets[None], model.noise()), beta)

        return loss

    return train_sparse_deep_kernel(source, guide.outputs, options, prepare, make_loss, held_out=held_out)


def fit_sparse_gdkl_classes(
    source: BatchSource, guide: Guide, options: SparseOptions, *, beta: float = 0.1
) -> FittedModel:
    """The same for labels: a softmax over sampled latents, and a Dirichlet guide; or a regression on ±1 a class.

    Args:
        source: Where batches of rows and class numbers come from.
        guide: A Gaussian process a class; asked about the halves of each batch, or about all rows ahead.
        options: How the deep kernel is built and trained.
        beta: Weight of the KL term, which is averaged over the classes.
    """
    dtype = options.algebra

    softmax = guide.likelihood is ClassLikelihood.DIRICHLET

    def prepare(step: int, batch: Batch) -> tuple[Tensor, ...]:
        p = guide.batch_posterior(batch.rows, batch.targets, batch.index, dtype)
        return (*p, softmax_samples(batch, guide.outputs, options, step)) if softmax else p

    def make_loss(model: SparseDeepKernel) -> Callable[..., ObjectiveValue]:
        model.noise.requires_grad_(not softmax)

        def loss(rows: Tensor, labels: Tensor, mean: Tensor, variance: Tensor, *base: Tensor) -> ObjectiveValue:
            q, p = model.marginals(rows), Marginals(mean, variance)
            if softmax:
                ell = softmax_term(q, labels.expand(options.members, -1), *base)
            else:
                ell = gaussian_term(q, guide.read_targets(labels, dtype).values[None], model.noise())
            return guided(q, p, ell, beta)

        return loss

    return train_sparse_deep_kernel(source, guide.outputs, options, prepare, make_loss)


def softmax_samples(batch: Batch, n_classes: int, options: SparseOptions, step: int) -> Tensor:
    """Standard normal numbers of one step, ``(samples, members, classes, b)``."""
    device = batch.rows.device
    generator = step_generator(options.seed, step, device, options.world.rank)
    shape = (SOFTMAX_SAMPLES, options.members, n_classes, batch.rows.shape[0])
    return torch.randn(shape, generator=generator, dtype=options.algebra, device=device)
