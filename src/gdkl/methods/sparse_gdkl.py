"""Guided deep kernel learning for any number of rows: inducing points, and a guide on the halves of each batch.

The student's beliefs q(f) do not depend on the split, the guide's do: each batch is split in two, the guide answers for
either half given the other, and the mean over all rows of the batch is ½(loss₁ + loss₂).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from gdkl.gp import ClassLikelihood, Marginals
from gdkl.guide import BatchGuide, ClassBatchGuide, ContextGuide
from gdkl.methods.fitted import FittedModel
from gdkl.methods.sparse_deep_kernel import SparseDeepKernel, SparseOptions, train_sparse_deep_kernel
from gdkl.objectives import SOFTMAX_SAMPLES, ObjectiveValue, guided, guided_softmax
from gdkl.training import Batch, BatchSource, step_generator


def fit_sparse_gdkl(
    source: BatchSource,
    guide: BatchGuide | ContextGuide,
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
    outputs = guide.noise.shape[0]

    def prepare(batch: Batch) -> Marginals:
        return guide.posterior(batch.rows, batch.targets, batch.index)

    def make_loss(model: SparseDeepKernel) -> Callable[[int, Batch, Marginals], ObjectiveValue]:
        def loss(step: int, batch: Batch, p: Marginals) -> ObjectiveValue:
            return guided(model.marginals(batch.rows), p, batch.targets[None], model.noise(), beta)

        return loss

    return train_sparse_deep_kernel(source, outputs, options, prepare, make_loss, held_out=held_out)


def fit_sparse_gdkl_classes(
    source: BatchSource, guide: ClassBatchGuide, options: SparseOptions, *, beta: float = 0.1
) -> FittedModel:
    """The same for labels: a softmax over sampled latents, and a Dirichlet guide; or a regression on ±1 a class.

    Args:
        source: Where batches of rows and class numbers come from.
        guide: A Gaussian process a class.
        options: How the deep kernel is built and trained.
        beta: Weight of the KL term, which is averaged over the classes.
    """
    dtype = options.algebra

    def prepare(batch: Batch) -> Marginals:
        return guide.posterior(batch.rows, batch.targets, batch.index, dtype)

    def make_loss(model: SparseDeepKernel) -> Callable[[int, Batch, Marginals], ObjectiveValue]:
        if guide.likelihood is ClassLikelihood.DIRICHLET:
            model.noise.requires_grad_(False)

        def loss(step: int, batch: Batch, p: Marginals) -> ObjectiveValue:
            q = model.marginals(batch.rows)
            if guide.likelihood is ClassLikelihood.GAUSSIAN:
                return guided(q, p, guide.targets(batch.targets, dtype).values[None], model.noise(), beta)
            labels = batch.targets.expand(options.members, -1)
            return guided_softmax(q, p, labels, softmax_samples(q, options, step), beta)

        return loss

    return train_sparse_deep_kernel(source, guide.n_classes, options, prepare, make_loss)


def softmax_samples(q: Marginals, options: SparseOptions, step: int) -> torch.Tensor:
    """Standard normal numbers of one step, ``(samples, members, classes, b)``."""
    generator = step_generator(options.seed, step, q.mean.device, options.world.rank)
    shape = (SOFTMAX_SAMPLES, *q.mean.shape)
    return torch.randn(shape, generator=generator, dtype=q.mean.dtype, device=q.mean.device)
