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

from gdkl.gp import Marginals, evidence_terms

_LOG_2PI = math.log(2 * math.pi)

#: Latents sampled for the softmax's data term in training, as published.
SOFTMAX_SAMPLES = 16


def expected_negative_log_likelihood(q: Marginals, y: Tensor, noise: Tensor) -> Tensor:
    """E_q[−log N(y; f, σ²)] = ½(log 2πσ² + ((y − μq)² + σq²) / σ²); ``noise`` broadcasts with ``y``."""
    return 0.5 * (_LOG_2PI + torch.log(noise) + ((y - q.mean).square() + q.variance) / noise)


def negative_log_predictive(q: Marginals, y: Tensor, noise: Tensor) -> Tensor:
    """−log N(y; μq, σq² + σ²)."""
    total = q.variance + noise
    return 0.5 * (_LOG_2PI + torch.log(total) + (y - q.mean).square() / total)


def gaussian_term(q: Marginals, y: Tensor, noise: Tensor) -> Tensor:
    """Mean of E_q[−log N(y; f, σ²)] over outputs and rows, with a noise variance per member and output."""
    return expected_negative_log_likelihood(q, y, noise.unsqueeze(-1)).mean(dim=(-2, -1))


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


def sampled_log_likelihood(q: Marginals, labels: Tensor, base: Tensor) -> Tensor:
    """Log mean_s softmax(f_s)[y] with f_s = μ + σ·ε_s: the log of the predictive probability, by Monte Carlo.

    From marginals ``(members, classes, n)`` and class numbers ``(members, n)``; the base samples ε, ``(samples,
    classes)``, are shared by all rows.

    Example:
        >>> zero = torch.zeros(1, 2, 3)
        >>> value = sampled_log_likelihood(Marginals(zero, zero + 1), torch.zeros(1, 3).long(), torch.zeros(5, 2))
        >>> print(round(float(value[0, 0]), 4))
        -0.6931
    """
    epsilon = base.to(q.mean)[:, None, :, None]
    return cast(Tensor, _SampledLogSoftmax.apply(q.mean, q.variance.sqrt(), labels, epsilon, True))


def expected_log_softmax(q: Marginals, labels: Tensor, base: Tensor) -> Tensor:
    """Mean_s log softmax(f_s)[y] with f_s = μ + σ·ε_s: the expected log-likelihood of a label, by Monte Carlo.

    From marginals ``(members, classes, n)`` and class numbers ``(members, n)``. The base samples ε are ``(samples,
    members or 1, classes, n)``: each row has its own, which makes the gradient of a batch less noisy than numbers that
    all rows share.

    Example:
        >>> zero = torch.zeros(1, 2, 3)
        >>> value = expected_log_softmax(Marginals(zero, zero + 1), torch.zeros(1, 3).long(), torch.zeros(5, 1, 2, 3))
        >>> print(round(float(value[0, 0]), 4))
        -0.6931
    """
    return cast(Tensor, _SampledLogSoftmax.apply(q.mean, q.variance.sqrt(), labels, base.to(q.mean), False))


def predictive_label_term(q: Marginals, labels: Tensor, base: Tensor) -> Tensor:
    """Mean of −log mean_s softmax(f_s)[y]; see `sampled_log_likelihood`.

    Rows without a label may follow those with one: they do not count.
    """
    n = labels.shape[-1]
    return -sampled_log_likelihood(Marginals(q.mean[..., :n], q.variance[..., :n]), labels, base).mean(dim=-1)


def softmax_term(q: Marginals, labels: Tensor, base: Tensor) -> Tensor:
    """Mean of −mean_s log softmax(f_s)[y]; see `expected_log_softmax`."""
    return -expected_log_softmax(q, labels, base).mean(dim=-1)


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
        ell: The data term, ``(members,)``.
        beta: Weight of the KL term.
        **further: More terms by name, each with its weight.

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
    """ℓ_pred: mean of −log q(y|x, D1) (eq. 4 of the paper)."""
    return weighted_sum(nlp=(negative_log_predictive(q, y, noise.unsqueeze(-1)).mean(dim=(-2, -1)), 1.0))


def marginal_likelihood(K: Tensor, y: Tensor, noise: Tensor, *, name: str) -> ObjectiveValue:
    """Negative log evidence per row: −log N(y; 0, K + σ²I) / n, averaged over outputs.

    Shapes: K ``(members, outputs or 1, n, n)``, y ``(members, outputs, n)``, noise ``(members, outputs)``.
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
    """Mean of −log softmax(logits)[y], of logits ``(members, classes, n)``: for a network with a softmax head."""
    chosen = torch.log_softmax(logits, dim=-2).gather(-2, labels.unsqueeze(-2)).squeeze(-2)
    return weighted_sum(nll=(-chosen.mean(dim=-1), 1.0))
