"""Training objectives as pure functions of marginals and targets.

Each returns a value per member, ``(members,)``, to be minimised, and its named terms for the log. Means run over
outputs and held-out rows, the last two dimensions of everything here. q is the student, p the guide. What differs
between likelihoods is the data term, how well q fits the targets: a mean over rows and, of numbers, outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import one_hot

from gdkl.gp import Marginals, evidence_terms, per_row

_LOG_2PI = math.log(2 * math.pi)

#: Latents sampled for the softmax's data term in training, as published.
SOFTMAX_SAMPLES = 16


def gaussian_term(q: Marginals, y: Tensor, noise: Tensor) -> Tensor:
    """Mean of E_q[−log N(y; f, σ²)] = ½(log 2πσ² + ((y − μq)² + σq²) / σ²), σ² per member and output, or per row."""
    noise = per_row(noise, y)
    value = 0.5 * (_LOG_2PI + torch.log(noise) + ((y - q.mean).square() + q.variance) / noise)
    return value.mean(dim=(-2, -1))


class _SampledLogSoftmax(Function):
    """log softmax(μ + σ·ε_s)[y], averaged over s as it is or as a probability, and its gradient."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, deviation: Tensor, labels: Tensor, base: Tensor, of_mean: bool) -> Tensor:
        f = torch.addcmul(mean, deviation, base)
        samples, chosen = len(f), labels.unsqueeze(-2)
        # Not the logarithm of a probability, which may be too small for it.
        log_own = f.gather(-2, chosen.expand(samples, *chosen.shape)).squeeze(-2) - torch.logsumexp(f, dim=-2)
        # With w_s the weight of sample s in the mean, Σ_s w_s = 1: ∂/∂f_s = w_s (1[y] − softmax(f_s)).
        R = torch.softmax(f, dim=-2).neg_().add_(one_hot(labels, mean.shape[-2]).movedim(-1, -2))
        if of_mean:
            R.mul_(torch.softmax(log_own, dim=0).unsqueeze(-2))
            value = torch.logsumexp(log_own, dim=0) - math.log(samples)
        else:
            R.div_(samples)
            value = log_own.mean(dim=0)
        ctx.save_for_backward(R.sum(dim=0), R.mul_(base).sum(dim=0))
        return value

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        grad_mean, grad_deviation = cast("tuple[Tensor, Tensor]", ctx.saved_tensors)
        g = gradients[0].unsqueeze(-2)
        return g * grad_mean, g * grad_deviation, None, None, None


def predictive_label_term(q: Marginals, labels: Tensor, base: Tensor) -> Tensor:
    """Mean of −log mean_s softmax(μ + σ·ε_s)[y], the predictive probability by Monte Carlo.

    From marginals ``(members, classes, n)`` and class numbers ``(members, n)``; rows without a label may follow those
    with one and do not count. The base samples ε, ``(samples, classes)``, are shared by all rows.

    Example:
        >>> zero = torch.zeros(1, 2, 3)
        >>> value = predictive_label_term(Marginals(zero, zero + 1), torch.zeros(1, 3).long(), torch.zeros(5, 2))
        >>> print(round(float(value), 4))
        0.6931
    """
    mean, variance = (value[..., : labels.shape[-1]] for value in q)
    epsilon = base.to(mean)[:, None, :, None]
    return -cast(Tensor, _SampledLogSoftmax.apply(mean, variance.sqrt(), labels, epsilon, True)).mean(dim=-1)


def softmax_term(q: Marginals, labels: Tensor, base: Tensor) -> Tensor:
    """Mean of −mean_s log softmax(μ + σ·ε_s)[y], the expected log-likelihood by Monte Carlo.

    From marginals ``(members, classes, n)`` and class numbers ``(members, n)``. The base samples ε are ``(samples,
    members or 1, classes, n)``: with its own samples per row the gradient of a batch is less noisy.
    """
    log_likelihood = _SampledLogSoftmax.apply(q.mean, q.variance.sqrt(), labels, base.to(q.mean), False)
    return -cast(Tensor, log_likelihood).mean(dim=-1)


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


def kl_term(q: Marginals, p: Marginals) -> Tensor:
    """Mean of KL(q‖p) = log(σp/σq) + (σq² + (μq − μp)²) / 2σp² − ½ over outputs and rows, ``(members,)``."""
    ratio = q.variance / p.variance
    shift = (q.mean - p.mean).square() / p.variance
    return (0.5 * (ratio + shift - 1 - torch.log(ratio))).mean(dim=(-2, -1))


def guided(
    q: Marginals, p: Marginals, ell: Tensor, beta: float | Tensor, **further: tuple[Tensor, float | Tensor]
) -> ObjectiveValue:
    """The guided objective, ``ell`` + β·KL(q‖p) (eq. 7 of the paper), and further terms by name, each with its weight.

    The KL needs no label: rows without one count in it. The guide's marginals may be one for all members.

    Example:
        >>> one = torch.ones(1, 1, 3)
        >>> q = Marginals(0 * one, one)
        >>> float(guided(q, q, torch.ones(1), beta=1.0).terms["kl"])
        0.0
    """
    return weighted_sum(ell=(ell, 1.0), kl=(kl_term(q, p), beta), **further)


def distillation(q: Marginals, p: Marginals) -> ObjectiveValue:
    """ℓ_dist: mean of KL(q‖p), no labels on the held-out rows (eq. 3 of the paper)."""
    return weighted_sum(kl=(kl_term(q, p), 1.0))


def predictive(q: Marginals, y: Tensor, noise: Tensor) -> ObjectiveValue:
    """ℓ_pred: mean of −log q(y|x, D1) = −log N(y; μq, σq² + σ²) (eq. 4 of the paper)."""
    total = q.variance + per_row(noise, y)
    value = 0.5 * (_LOG_2PI + torch.log(total) + (y - q.mean).square() / total)
    return weighted_sum(nlp=(value.mean(dim=(-2, -1)), 1.0))


def marginal_likelihood(K: Tensor, y: Tensor, noise: Tensor, *, name: str) -> ObjectiveValue:
    """Negative log evidence per row: −log N(y; 0, K + σ²I) / n, averaged over outputs.

    Shapes: K ``(members, outputs or 1, n, n)``, y ``(members, outputs, n)``, noise ``(members, outputs)``.
    """
    data_fit, complexity = (term.mean(dim=-1) / y.shape[-1] for term in evidence_terms(K, y, noise, name=name))
    return weighted_sum(data_fit=(data_fit, 1.0), complexity=(complexity, 1.0))


def evidence_bound(ell: Tensor, kl: Tensor, rows: int, weight: float = 1.0) -> ObjectiveValue:
    """Negative evidence bound per row of an inducing-point model, from a batch.

    ``kl`` is KL(q(u) ‖ p(u)): the mean of outputs that the data term averages, the sum of classes. It is spread over
    all training rows; with another weight than 1 this is no bound.
    """
    return weighted_sum(ell=(ell, 1.0), kl_u=(kl / rows, weight))


def code_kl(mean: Tensor, variance: Tensor, prior: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(m, 1)) of codes ``(members, n, codes)``: sum over their dimensions, mean over rows.

    Example:
        >>> one = torch.ones(1, 3, 2)
        >>> code_kl(one, one, 0 * one)
        tensor([1.])
    """
    value = 0.5 * (variance + (mean - prior).square() - 1 - torch.log(variance))
    return value.sum(dim=-1).mean(dim=-1)


def cross_entropy(logits: Tensor, labels: Tensor) -> ObjectiveValue:
    """Mean of −log softmax(logits)[y], of logits ``(members, classes, n)``: for a network with a softmax head."""
    chosen = torch.log_softmax(logits, dim=-2).gather(-2, labels.unsqueeze(-2)).squeeze(-2)
    return weighted_sum(nll=(-chosen.mean(dim=-1), 1.0))
