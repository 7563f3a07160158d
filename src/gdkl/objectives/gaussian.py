"""Training objectives as pure functions of marginals and targets.

Each returns a value a member, shape ``(members,)``, to be minimised, and its named terms for the log. Means run
over outputs and held-out rows, the last two dimensions of everything here. q is the student, p the guide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gdkl.gp import Marginals, evidence_terms

_LOG_2PI = math.log(2 * math.pi)


class ObjectiveValue(NamedTuple):
    """What an objective returns: the value to minimise and the terms it is made of, each ``(members,)``."""

    value: Tensor
    terms: Mapping[str, Tensor]


def gaussian_kl(q: Marginals, p: Marginals) -> Tensor:
    """KL(q‖p) between univariate Gaussians: log(σp/σq) + (σq² + (μq − μp)²) / 2σp² − ½."""
    ratio = q.variance / p.variance
    shift = (q.mean - p.mean).square() / p.variance
    return 0.5 * (ratio + shift - 1 - torch.log(ratio))


def expected_negative_log_likelihood(q: Marginals, y: Tensor, noise: Tensor) -> Tensor:
    """E_q[−log N(y; f, σ²)] = ½(log 2πσ² + ((y − μq)² + σq²) / σ²); ``noise`` broadcasts with ``y``."""
    return 0.5 * (_LOG_2PI + torch.log(noise) + ((y - q.mean).square() + q.variance) / noise)


def negative_log_predictive(q: Marginals, y: Tensor, noise: Tensor) -> Tensor:
    """−log N(y; μq, σq² + σ²)."""
    total = q.variance + noise
    return 0.5 * (_LOG_2PI + torch.log(total) + (y - q.mean).square() / total)


def _mean(entries: Tensor) -> Tensor:
    return entries.mean(dim=(-2, -1))


def guided(q: Marginals, p: Marginals, y: Tensor, noise: Tensor, beta: float | Tensor) -> ObjectiveValue:
    """The guided objective: mean of E_q[−log p(y|f)] + β·KL(q‖p) (eq. 7 of the paper).

    Args:
        q: Student's latent marginals on the held-out rows, ``(members, outputs, n2)``.
        p: Guide's, same shape.
        y: Held-out targets, same shape.
        noise: The student's noise variance, ``(members, outputs)``.
        beta: Weight of the KL term.

    Example:
        >>> one = torch.ones(1, 1, 3)
        >>> q = Marginals(0 * one, one)
        >>> float(guided(q, q, 0 * one, torch.ones(1, 1), beta=1.0).terms["kl"])
        0.0
    """
    ell, kl = cast("tuple[Tensor, Tensor]", _GuidedTerms.apply(q.mean, q.variance, p.mean, p.variance, y, noise))
    return ObjectiveValue(ell + beta * kl, {"ell": ell, "kl": kl})


class _GuidedTerms(Function):
    """Means of E_q[−log p(y|f)] and KL(q‖p) with their gradients written out: the step differentiates them often."""

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, variance: Tensor, p_mean: Tensor, p_variance: Tensor, y: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        q, p, noise = Marginals(mean, variance), Marginals(p_mean, p_variance), noise.unsqueeze(-1)
        ctx.save_for_backward(mean, variance, p_mean, p_variance, y, noise)
        return _mean(expected_negative_log_likelihood(q, y, noise)), _mean(gaussian_kl(q, p))

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        mean, variance, p_mean, p_variance, y, noise = cast("tuple[Tensor, ...]", ctx.saved_tensors)
        of_ell, of_kl = (value[:, None, None] / (y.shape[-2] * y.shape[-1]) for value in gradients)
        error = mean - y
        by_noise, by_p = of_ell / noise, of_kl / p_variance
        grad_mean = error * by_noise + (mean - p_mean) * by_p
        grad_variance = 0.5 * (by_noise + by_p - of_kl / variance)
        grad_noise = 0.5 * (by_noise * (1 - (error.square() + variance) / noise)).sum(dim=-1)
        return grad_mean, grad_variance, None, None, None, grad_noise


def distillation(q: Marginals, p: Marginals) -> ObjectiveValue:
    """ℓ_dist: mean of KL(q‖p), no labels on the held-out rows (eq. 3 of the paper)."""
    kl = _mean(gaussian_kl(q, p))
    return ObjectiveValue(kl, {"kl": kl})


def predictive(q: Marginals, y: Tensor, noise: Tensor) -> ObjectiveValue:
    """ℓ_pred: mean of −log q(y|x, D1) (eq. 4 of the paper)."""
    nlp = _mean(negative_log_predictive(q, y, noise.unsqueeze(-1)))
    return ObjectiveValue(nlp, {"nlp": nlp})


def marginal_likelihood(K: Tensor, y: Tensor, noise: Tensor, *, name: str) -> ObjectiveValue:
    """Negative log evidence a row: −log N(y; 0, K + σ²I) / n, averaged over outputs.

    Args:
        K: Kernel over all rows, ``(members, outputs or 1, n, n)``.
        y: Targets, ``(members, outputs, n)``.
        noise: Noise variances, ``(members, outputs)``.
        name: What K + σ²I is, for numerical errors.
    """
    n = y.shape[-1]
    data_fit, complexity = (term.mean(dim=-1) / n for term in evidence_terms(K, y, noise, name=name))
    return ObjectiveValue(data_fit + complexity, {"data_fit": data_fit, "complexity": complexity})
