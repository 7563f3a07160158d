"""Deep kernel learning for any number of rows: inducing points and the variational evidence bound."""

from __future__ import annotations

from torch import Tensor

from gdkl.gp import ClassLikelihood, label_targets
from gdkl.methods.sparse_gdkl import calibrate_noise, softmax_samples
from gdkl.objectives import ObjectiveValue, evidence_bound, gaussian_term, softmax_term
from gdkl.training import Batch, BatchSource, FittedModel, SparseDeepKernel, StudentOptions, fit_sparse


def fit_sparse_dkl(
    source: BatchSource, outputs: int, options: StudentOptions, *, held_out: Batch | None = None
) -> FittedModel:
    """Train a deep kernel with inducing points by the evidence bound of Gaussian targets.

    Args:
        source: Where batches come from.
        outputs: Number of targets per row.
        options: How the deep kernel is built and trained.
        held_out: Rows that are not in ``source``, which calibrate the noise of predictions; None to keep the learned.
    """

    def loss(student: SparseDeepKernel, rows: Tensor, targets: Tensor) -> ObjectiveValue:
        ell = gaussian_term(student.marginals(rows), targets[None], student.noise())
        return evidence_bound(ell, student.points.kl().mean(dim=-1), source.rows)

    return fit_sparse(source, outputs, options, loss, finish=calibrate_noise(held_out))


def fit_sparse_dkl_classes(
    source: BatchSource,
    n_classes: int,
    options: StudentOptions,
    *,
    likelihood: ClassLikelihood = ClassLikelihood.DIRICHLET,
    kl_weight: float = 1.0,
) -> FittedModel:
    """The same for labels: a softmax over sampled latents; or a regression on ±1 per class.

    Args:
        source: Where batches of rows and class numbers come from.
        n_classes: Number of classes.
        options: How the deep kernel is built and trained.
        likelihood: Gaussian for ±1; a softmax otherwise.
        kl_weight: Of KL(q(u) ‖ p(u)); 1 for the bound itself.
    """
    softmax = likelihood is ClassLikelihood.DIRICHLET

    def inputs(step: int, batch: Batch) -> tuple[Tensor, ...]:
        return (softmax_samples(batch, n_classes, options, step),) if softmax else ()

    def loss(student: SparseDeepKernel, rows: Tensor, labels: Tensor, *base: Tensor) -> ObjectiveValue:
        q, kl = student.marginals(rows), student.points.kl()
        if not softmax:
            y = label_targets(labels, n_classes, likelihood, options.algebra).values
            return evidence_bound(gaussian_term(q, y[None], student.noise()), kl.mean(dim=-1), source.rows)
        ell = softmax_term(q, labels.expand(options.members, -1), *base)
        return evidence_bound(ell, kl.sum(dim=-1), source.rows, kl_weight)

    return fit_sparse(source, n_classes, options, loss, inputs, learn_noise=not softmax)
