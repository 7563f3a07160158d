"""Deep kernel learning for any number of rows: inducing points and the variational evidence bound, on the same loop."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from gdkl.gp import ClassLikelihood, label_targets
from gdkl.methods.fitted import FittedModel
from gdkl.methods.sparse_deep_kernel import SparseDeepKernel, SparseOptions, train_sparse_deep_kernel
from gdkl.methods.sparse_gdkl import softmax_samples
from gdkl.objectives import ObjectiveValue, evidence_bound, gaussian_term, softmax_term
from gdkl.training import Batch, BatchSource


def _nothing(step: int, batch: Batch) -> tuple[Tensor, ...]:
    """DKL asks nobody."""
    return ()


def fit_sparse_dkl(
    source: BatchSource, outputs: int, options: SparseOptions, *, held_out: Batch | None = None
) -> FittedModel:
    """Train a deep kernel with inducing points by the evidence bound of Gaussian targets.

    Args:
        source: Where batches come from.
        outputs: Number of targets a row.
        options: How the deep kernel is built and trained.
        held_out: Rows that are not in ``source``, which the noise of predictions comes from; None to keep the learned.
    """

    def make_loss(model: SparseDeepKernel) -> Callable[..., ObjectiveValue]:
        def loss(rows: Tensor, targets: Tensor) -> ObjectiveValue:
            ell = gaussian_term(model.marginals(rows), targets[None], model.noise())
            return evidence_bound(ell, model.points.kl().mean(dim=-1), source.rows)

        return loss

    return train_sparse_deep_kernel(source, outputs, options, _nothing, make_loss, held_out=held_out)


def fit_sparse_dkl_classes(
    source: BatchSource,
    n_classes: int,
    options: SparseOptions,
    *,
    likelihood: ClassLikelihood = ClassLikelihood.DIRICHLET,
    kl_weight: float = 1.0,
) -> FittedModel:
    """The same for labels: a softmax over sampled latents; or a regression on ±1 a class.

    Args:
        source: Where batches of rows and class numbers come from.
        n_classes: Number of classes.
        options: How the deep kernel is built and trained.
        likelihood: Gaussian for ±1; a softmax otherwise.
        kl_weight: Of KL(q(u) ‖ p(u)); 1 for the bound itself.
    """
    softmax = likelihood is ClassLikelihood.DIRICHLET

    def prepare(step: int, batch: Batch) -> tuple[Tensor, ...]:
        return (softmax_samples(batch, n_classes, options, step),) if softmax else ()

    def make_loss(model: SparseDeepKernel) -> Callable[..., ObjectiveValue]:
        model.noise.requires_grad_(not softmax)

        def loss(rows: Tensor, labels: Tensor, *base: Tensor) -> ObjectiveValue:
            q, kl = model.marginals(rows), model.points.kl()
            if not softmax:
                y = label_targets(labels, n_classes, likelihood, options.algebra).values
                return evidence_bound(gaussian_term(q, y[None], model.noise()), kl.mean(dim=-1), source.rows)
            ell = softmax_term(q, labels.expand(options.members, -1), *base)
            return evidence_bound(ell, kl.sum(dim=-1), source.rows, kl_weight)

        return loss

    return train_sparse_deep_kernel(source, n_classes, options, prepare, make_loss)
