"""Training objectives as pure functions of marginals and targets.

Each returns a value per member, ``(members,)``, to be minimised, and its named terms for the log. Means run over
outputs and held-out rows, the last two dimensions of everything here. q is the student, p the guide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import torch
from torch import Tensor

from gdkl.gp import Marginals, evidence_terms
from gdkl.objectives.data_terms import expected_negative_log_likelihood, negative_log_predictive


class SplitObjective(StrEnum):
    """Objectives over random splits, as the paper compares them."""

    GUIDED = "guided"
    """E_q[−log p(y|f)] + β·KL(q‖p): what GDKL is."""
    DISTILLATION = "distillation"
    """KL(q‖p) alone: the student imitates the guide."""
    PREDICTIVE = "predictive"
    """−log q(y|x, D1) alone: no guide, overfits."""


class ObjectiveValue(NamedTuple):
    """What an objective returns: the value to minimise and the terms it is made of, each ``(members,)``."""

    value: Tensor
    terms: Mapping[str, Tensor]


def weighted_sum(**terms: tuple[Tensor, float | Tensor]) -> ObjectiveValue:
    """An objective from its named terms, each with its weight.

    Example:
        >>> one = torch.ones(1)
        >>> weighted_sum(ell=(one, 1.0), kl=(2 * one, 0.5)).value
        tensor([2.])
    """
    first, *others = (weight * term for term, weight in terms.values())
    return ObjectiveValue(sum(others, start=first), {name: term for name, (term, _) in terms.items()})


def gaussian_kl(q: Marginals, p: Marginals) -> Tensor:
    """KL(q‖p) between univariate Gaussians: log(σp/σq) + (σq² + (μq − μp)²) / 2σp² − ½."""
    ratio = q.variance / p.variance
    shift = (q.mean - p.mean).square() / p.variance
    return 0.5 * (ratio + shift - 1 - torch.log(ratio))


def kl_term(q: Marginals, p: Marginals) -> Tensor:
    """Mean of KL(q‖p) over outputs and rows, ``(members,)``."""
    return gaussian_kl(q, p).mean(dim=(-2, -1))


def guided(
    q: Marginals, p: Marginals, ell: Tensor, beta: float | Tensor, **further: tuple[Tensor, float | Tensor]
) -> ObjectiveValue:
    """The guided objective: a data term + β·KL(q‖p) (eq. 7 of the paper), and whatever else has a name and a weight.

    Args:
        q: Student's latent marginals, ``(members, outputs, n2)``. The KL needs no label: rows without one count in it.
        p: Guide's, same shape or one for all members.
        ell: The data term, ``(members,)``: one of `gdkl.objectives.data_terms`.
        beta: Weight of the KL term.
        **further: More terms by name, each with its weight.

    Example:
        >>> one = torch.ones(1, 1, 3)
        >>> q = Marginals(0 * one, one)
        >>> float(guided(q, q, torch.ones(1), beta=1.0).terms["kl"])
        0.0
    """
    return weighted_sum(ell=(ell, 1.0), kl=(kl_term(q, p), beta), **further)


class GuidedTerms(NamedTuple):
    """The guided objective's terms, and the gradients of ELL + β·KL by the student's means, variances and noise."""

    ell: Tensor
    kl: Tensor
    of_mean: Tensor
    of_variance: Tensor
    of_noise: Tensor


@torch.no_grad()
def guided_terms(q: Marginals, p: Marginals, y: Tensor, noise: Tensor, beta: float) -> GuidedTerms:
    """`guided` with Gaussian targets and its gradient, without autograd.

    Args:
        q: Student's marginals, ``(..., outputs, n2)``, or ``(n2,)`` for one output.
        p: Guide's, same shape.
        y: Held-out targets, same shape.
        noise: The student's noise variance, ``(..., outputs)``, or ``()``.
        beta: Weight of the KL term.

    Example:
        >>> one = torch.ones(3)
        >>> terms = guided_terms(Marginals(one, one), Marginals(one, one), one, torch.tensor(2.0), beta=1.0)
        >>> terms.kl.item(), terms.of_mean.tolist()
        (0.0, [0.0, 0.0, 0.0])
    """
    over = (-2, -1) if y.dim() > 1 else (-1,)
    entries = math.prod(y.shape[dim] for dim in over)
    noise = noise.unsqueeze(-1)
    ell = expected_negative_log_likelihood(q, y, noise).mean(dim=over)
    kl = gaussian_kl(q, p).mean(dim=over)
    by_noise, by_p = 1 / (entries * noise), (beta / entries) / p.variance
    error = q.mean - y
    of_mean = torch.addcmul(error * by_noise, q.mean - p.mean, by_p)
    of_variance = (by_p - (beta / entries) / q.variance + by_noise).mul_(0.5)
    of_noise = 0.5 * by_noise * (1 - torch.addcmul(q.variance, error, error) / noise)
    return GuidedTerms(ell, kl, of_mean, of_variance, of_noise.sum(dim=-1))


def distillation(q: Marginals, p: Marginals) -> ObjectiveValue:
    """ℓ_dist: mean of KL(q‖p), no labels on the held-out rows (eq. 3 of the paper)."""
    return weighted_sum(kl=(kl_term(q, p), 1.0))


def predictive(q: Marginals, y: Tensor, noise: Tensor) -> ObjectiveValue:
    """ℓ_pred: mean of −log q(y|x, D1) (eq. 4 of the paper)."""
    return weighted_sum(nlp=(negative_log_predictive(q, y, noise.unsqueeze(-1)).mean(dim=(-2, -1)), 1.0))


def marginal_likelihood(K: Tensor, y: Tensor, noise: Tensor, *, name: str) -> ObjectiveValue:
    """Negative log evidence per row: −log N(y; 0, K + σ²I) / n, averaged over outputs.

    Args:
        K: Kernel over all rows, ``(members, outputs or 1, n, n)``.
        y: Targets, ``(members, outputs, n)``.
        noise: Noise variances, ``(members, outputs)``.
        name: What K + σ²I is, for numerical errors.
    """
    data_fit, complexity = (term.mean(dim=-1) / y.shape[-1] for term in evidence_terms(K, y, noise, name=name))
    return weighted_sum(data_fit=(data_fit, 1.0), complexity=(complexity, 1.0))


def evidence_bound(ell: Tensor, kl: Tensor, rows: int, weight: float = 1.0) -> ObjectiveValue:
    """Negative evidence bound per row of an inducing-point model, from a batch.

    Args:
        ell: The data term, ``(members,)``.
        kl: KL(q(u) ‖ p(u)), ``(members,)``: of outputs that the data term averages, their mean; of classes, their sum.
        rows: Number of all training rows, over which that KL is spread.
        weight: Of the KL; 1 for the bound itself.
    """
    return weighted_sum(ell=(ell, 1.0), kl_u=(kl / rows, weight))


def cross_entropy(logits: Tensor, labels: Tensor) -> ObjectiveValue:
    """Mean of −log softmax(logits)[y]: what a network with a softmax head is trained on.

    Args:
        logits: ``(members, classes, n)``.
        labels: ``(members, n)``.
    """
    chosen = torch.log_softmax(logits, dim=-2).gather(-2, labels.unsqueeze(-2)).squeeze(-2)
    return weighted_sum(nll=(-chosen.mean(dim=-1), 1.0))
