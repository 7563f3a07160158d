"""Two ways to choose a guide's hyperparameters: by evidence, and by what it predicts for held-out labels.

Evidence prefers output scales at which a guide is far too unsure of labels, and a student follows its guide. So a
classifier's guide is scored by the probability of the labels of one random half given those of the other: the scale
with the best score over several splits is the one that the student is guided by. Held-out labels also decide how much
of the labels' own variances a prediction carries. The measurements are in docs/results/negative.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gdkl.gp import (
    NOISE_FLOOR,
    NOISE_START,
    ClassLikelihood,
    KernelFunction,
    LabelTargets,
    Marginals,
    Solver,
    Split,
    base_samples,
    class_log_probs,
    label_targets,
    take_targets,
)
from gdkl.guide.evidence import fit_by_evidence
from gdkl.guide.grams import normalised_gram
from gdkl.guide.guide import MATRIX_NAME, Guide
from gdkl.guide.relevance import fit_scale_of
from gdkl.numerics import limit_threads

#: Part of the rows that a guide of mini-batches is fitted on, with the fewest and the most.
SUBSET_PART, SUBSET_FEWEST, SUBSET_MOST = 0.05, 256, 4000

#: Factors of the labels' own variances that are tried for prediction. The whole is kept unless less is
#: clearly better on held-out labels: an improvement of the negative log-likelihood by this part of it.
_NOISE_FACTORS = (1.0, 0.3, 0.1)
_CLEARLY = 0.05

#: Output scales that are tried, over a Gram of mean diagonal one: powers of two.
_SCALES = tuple(2.0**power for power in range(-2, 15))
#: Random halvings of the training rows that a scale is judged by.
_SPLITS = 4
#: At most this many rows take part in a halving: the best scale hardly depends on more, the time does.
_MOST_ROWS = 600
_SAMPLES = 256


def subset_size(n: int) -> int:
    """Rows that the hyperparameters of a guide of mini-batches are fitted on: 5 %, at least 256, at most 4000.

    Example:
        >>> [subset_size(n) for n in (100, 1000, 45730, 600_000)]
        [100, 256, 2286, 4000]
    """
    return min(n, max(SUBSET_FEWEST, min(SUBSET_MOST, round(SUBSET_PART * n))))


@torch.no_grad()
def fit_guide(
    kernel: KernelFunction,
    rows: Tensor,
    targets: Tensor,
    *,
    noise_floor: float = NOISE_FLOOR,
    noise_scale: Tensor | None = None,
    noise_added: Tensor | None = None,
    little_noise: bool = False,
) -> Guide:
    """Compute the Gram of rows ``(members, n, d)`` once, normalise it and fit output scale and noise by evidence.

    Targets are ``(members, outputs, n)``. What the noise of each row is multiplied by, and what is added to it, are
    ``(members, 1, n)``; outputs then share scale and noise. ``little_noise`` is as for `fit_by_evidence`.
    """
    with limit_threads(rows.shape[1]):
        gram, normaliser = normalised_gram(kernel, rows.to(targets.dtype), targets.dtype, copies=4)
        if noise_scale is None and noise_added is None:
            fit = fit_by_evidence(gram, targets, noise_floor, little_noise=little_noise)
            return Guide(kernel, normaliser, fit.scale, fit.noise, gram, targets, fit.log_evidence, fit.scale)
        factor = torch.ones_like(targets[:, :1]) if noise_scale is None else noise_scale
        added = torch.zeros_like(factor) if noise_added is None else noise_added
        found = [
            fit_scale_of(gram[k], targets[k], factor[k, 0], added[k, 0], noise_floor, little_noise=little_noise)
            for k in range(len(targets))
        ]
    scale, noise, score = (targets.new_tensor([[values[i]] for values in found]) for i in (1, 2, 3))
    scale, noise = scale.exp(), noise.exp()
    own = (noise.unsqueeze(-1) * (factor - 1) + added).expand_as(targets)
    return Guide(kernel, normaliser, scale, noise, gram, targets, score, scale, label_noise=own)


@torch.no_grad()
def fit_class_guide(
    kernel: KernelFunction,
    rows: Tensor,
    labels: Tensor,
    n_classes: int,
    *,
    likelihood: ClassLikelihood = ClassLikelihood.DIRICHLET,
    scale: float | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Guide:
    """Compute the Gram of rows ``(members, n, d)`` once, normalise it and choose scale and noise for all classes.

    Labels are class numbers ``(members, n)``. As regression, scale and noise are those of the largest evidence. A given
    scale is the one that the student sees; ``seed`` draws the random halvings.
    """
    gram, normaliser = normalised_gram(kernel, rows, dtype, copies=6)
    targets = label_targets(labels, n_classes, likelihood, dtype)
    noise, scales, factors = torch.full_like(normaliser, NOISE_START), torch.tensor(_SCALES).to(gram), _NOISE_FACTORS
    grid = scales.expand(len(rows), -1)
    if likelihood is ClassLikelihood.GAUSSIAN:
        fit = fit_by_evidence(gram, targets.values, NOISE_START)
        # One pair for all classes: the geometric mean of theirs.
        own, noise = (value.log().mean(dim=-1).exp() for value in (fit.scale, fit.noise))
        grid, factors = own.unsqueeze(-1), (1.0,)
    trials = [
        try_scales(gram, LabelTargets(targets.values, factor * targets.noise), labels, likelihood, grid, noise, seed)
        for factor in factors
    ]
    # (factors, members): the best scale for each factor, and what it reaches.
    log_likelihoods, accuracies = (torch.stack(values) for values in zip(*trials, strict=True))
    best = log_likelihoods.argmax(dim=-1, keepdim=True)
    tried = grid.expand_as(log_likelihoods), log_likelihoods, accuracies
    own, score, accuracy = (values.gather(-1, best).squeeze(-1) for values in tried)
    whole = own[0].unsqueeze(-1)
    chosen = torch.where(score.amax(dim=0) > (1 - _CLEARLY) * score[0], score.argmax(dim=0), 0)[None]
    own, score, accuracy = (values.gather(0, chosen).mT for values in (own, score, accuracy))
    return Guide(
        kernel,
        normaliser,
        # The student's guide has the best scale with the labels' whole variances.
        whole if scale is None else torch.full_like(whole, scale),
        noise.unsqueeze(-1),
        gram,
        targets.values,
        score,
        own,
        likelihood,
        label_noise=targets.noise,
        label_noise_factor=torch.tensor(factors).to(gram)[chosen[0]],
        accuracy=accuracy,
    )


@torch.no_grad()
def try_scales(
    gram: Tensor,
    targets: LabelTargets,
    labels: Tensor,
    likelihood: ClassLikelihood,
    scales: Tensor,
    noise: Tensor,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Log probability and accuracy on held-out halves of the guide alone, with the labels' own variances.

    Both are ``(members, scales)``, as are the output scales to try; the noise is ``(members,)``.
    """
    base = base_samples(_SAMPLES, targets.values.shape[-2], seed).to(gram)
    generator = torch.Generator().manual_seed(seed)
    scores = gram.new_zeros(2, *scales.shape)
    member = torch.arange(len(gram), device=gram.device)[:, None, None]
    for _ in range(_SPLITS):
        one, two = split = _halves(labels, generator)
        K11, K12 = (gram[member, one.unsqueeze(-1), other.unsqueeze(-2)].unsqueeze(-3) for other in split)
        k22 = gram.diagonal(dim1=-2, dim2=-1).gather(-1, two).unsqueeze(-2)
        y1, own_noise = (take_targets(values, one) for values in targets)
        y2 = labels.gather(-1, two)
        for index in range(scales.shape[-1]):
            scale = scales[:, index, None, None]
            solver = Solver.of(K11, (own_noise + noise[:, None, None]) / scale, name=MATRIX_NAME)
            mean, variance = solver.marginals(K12, k22, y1)
            log_probs = class_log_probs(Marginals(mean, scale * variance), likelihood, noise[:, None], base)
            scores[0, :, index] += log_probs.gather(-2, y2.unsqueeze(-2)).mean(dim=(-2, -1))
            scores[1, :, index] += (log_probs.argmax(dim=-2) == y2).to(gram).mean(dim=-1)
    return scores[0] / _SPLITS, scores[1] / _SPLITS


def _halves(labels: Tensor, generator: torch.Generator) -> Split:
    """Two halves of at most `_MOST_ROWS` rows, as many of each class in both up to one.

    In unstratified halves a class that one half has too many of is one that the other lacks; new rows have no such gap.
    """
    members, n = labels.shape
    order = torch.rand(members, n, generator=generator).argsort(dim=-1)[:, :_MOST_ROWS].to(labels.device)
    by_class = labels.gather(-1, order).argsort(dim=-1, stable=True)
    order = order.gather(-1, by_class)
    return Split(order[:, 1::2], order[:, ::2])
