"""Deep latent-variable kernel learning: stochastic encoder + inducing points over sampled codes + evidence bound.

    L = mean over rows of  −E_q(z|x) E_q(f|z)[log p(y|f)] + w_z·KL(q(z|x) ‖ N(PCA(x), I))  +  w_u·KL(q(u) ‖ p(u)) / n

The expectation over codes z has one sample per row and step; with both weights 1 this is the negative bound per row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from gdkl.gp import ClassLikelihood, Marginals, label_targets
from gdkl.methods.sparse_gdkl import softmax_samples
from gdkl.nets import GaussianEncoder, PrincipalComponents, code_samples, draw_codes, split_codes
from gdkl.objectives import ObjectiveValue, code_kl, gaussian_term, softmax_term, weighted_sum
from gdkl.training import (
    Batch,
    BatchSource,
    CodedModel,
    SparseDeepKernel,
    StudentOptions,
    fit_sparse,
    step_generator,
)

#: Codes that predictions are averaged over; the authors take ten.
_PREDICTION_CODES = 16

#: Rows that the principal components are found from, and that encoders start from, at most.
_COMPONENT_ROWS, _START_ROWS = 2000, 256


class CodeOptions(NamedTuple):
    """Dimensions of a code, the weight of the codes' KL and that of the inducing values'."""

    size: int = 50
    code_weight: float = 1.0
    inducing_weight: float = 1.0


#: From marginals, targets of the batch, the student's noise and base samples to the data term, ``(members,)``.
DataTerm = Callable[..., Tensor]


def fit_dlvkl(source: BatchSource, outputs: int, options: StudentOptions, codes: CodeOptions) -> CodedModel:
    """Train an encoder and a Gaussian process over its codes by the evidence bound of Gaussian targets."""

    def term(q: Marginals, targets: Tensor, noise: Tensor) -> Tensor:
        return outputs * gaussian_term(q, targets[None], noise)

    return _fit(source, outputs, options, codes, term)


def fit_dlvkl_classes(
    source: BatchSource, n_classes: int, options: StudentOptions, codes: CodeOptions, *, softmax: bool = True
) -> CodedModel:
    """The same of labels: by a softmax over sampled latents, or as Gaussian targets of the Dirichlet transform."""

    def dirichlet(q: Marginals, labels: Tensor, noise: Tensor) -> Tensor:
        y = label_targets(labels, n_classes, ClassLikelihood.DIRICHLET, options.algebra)
        return n_classes * gaussian_term(q, y.values[None], noise.unsqueeze(-1) + y.noise)

    def sampled(q: Marginals, labels: Tensor, noise: Tensor, base: Tensor) -> Tensor:
        return softmax_term(q, labels.expand(options.members, -1), base)

    return _fit(source, n_classes, options, codes, sampled if softmax else dirichlet, softmax=softmax)


def _fit(
    source: BatchSource,
    outputs: int,
    options: StudentOptions,
    codes: CodeOptions,
    term: DataTerm,
    *,
    softmax: bool = False,
) -> CodedModel:
    some = source.sample(_COMPONENT_ROWS, options.seed).rows
    components = PrincipalComponents.of(some, codes.size, options.seed)
    build, members, first = options.feature_net, options.members, some[:_START_ROWS].cpu()
    start = components(some[:_START_ROWS]).cpu()

    def encoder(columns: int) -> GaussianEncoder:
        return GaussianEncoder(build(columns), columns, codes.size).start_at(first, start)

    options = replace(options, feature_net=encoder)

    def inputs(step: int, batch: Batch) -> tuple[Tensor, ...]:
        # Numbers of their own: steps counted from 0 draw base samples and batches.
        generator = step_generator(options.seed, -1 - step, batch.rows.device, options.world.rank)
        shape = (members, len(batch.rows), codes.size)
        epsilon = torch.randn(shape, generator=generator, dtype=options.algebra, device=batch.rows.device)
        prior = components(batch.rows).to(options.algebra)
        return epsilon, prior, *((softmax_samples(batch, outputs, options, step),) if softmax else ())

    def loss(
        student: SparseDeepKernel, rows: Tensor, targets: Tensor, epsilon: Tensor, prior: Tensor, *base: Tensor
    ) -> ObjectiveValue:
        encoded = student.network(rows.expand(members, *rows.shape)).to(epsilon)
        q = student.posterior().marginals(draw_codes(encoded, epsilon))
        return weighted_sum(
            ell=(term(q, targets, student.noise(), *base), 1.0),
            kl_codes=(code_kl(*split_codes(encoded), prior), codes.code_weight),
            kl_u=(student.points.kl().sum(dim=-1) / source.rows, codes.inducing_weight),
        )

    model = fit_sparse(
        source, outputs, options, loss, inputs, learn_noise=not softmax, read_features=lambda x: split_codes(x)[0]
    )
    return CodedModel(**vars(model), samples=code_samples(_PREDICTION_CODES, codes.size, options.seed))
