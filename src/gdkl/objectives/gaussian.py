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


def guided(q: Marginals, p: Marginals, y: Tensor, noise: Tensor, beta: float) -> ObjectiveValue:
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
    value, ell, kl = cast("tuple[Tensor, ...]", _Guided.apply(q.mean, q.variance, p.mean, p.variance, y, noise, beta))
    return ObjectiveValue(value, {"ell": ell, "kl": kl})


class _Guided(Function):
    """The guided objective and its terms; the gradient comes with them, because a step takes it every time."""

    @staticmethod
    def forward(
        ctx: Any,
        mean: Tensor,
        variance: Tensor,
        p_mean: Tensor,
        p_variance: Tensor,
        y: Tensor,
        noise: Tensor,
        beta: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ell, kl, *gradients = guided_terms(Marginals(mean, variance), Marginals(p_mean, p_variance), y, noise, beta)
        ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(ell, kl)
        return torch.add(ell, kl, alpha=beta), ell, kl

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        of_mean, of_variance, of_noise = cast("tuple[Tensor, ...]", ctx.saved_tensors)
        weights = gradients[0][..., None]
        return (
            of_mean * weights[..., None], of_variance * weights[..., None], None, None, None, of_noise * weights, None
        )  # fmt: skip


class GuidedTerms(NamedTuple):
    """The guided objective's terms, and the gradients of ELL + β·KL by the student's means, variances and noise."""

    ell: Tensor
    kl: Tensor
    of_mean: Tensor
    of_variance: Tensor
    of_noise: Tensor


def guided_terms(q: Marginals, p: Marginals, y: Tensor, noise: Tensor, beta: float) -> GuidedTerms:
    """What `guided` is made of, without autograd.

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
    with torch.no_grad():
        if y.dim() == 1 and y.device.type == "cpu":
            return _terms_of_one(q, p, y, noise, beta)
        over = (-2, -1) if y.dim() > 1 else (-1,)
        entries = math.prod(y.shape[dim] for dim in over)
        noise = noise.unsqueeze(-1)
        error, shift = q.mean - y, q.mean - p.mean
        expected, ratio = torch.addcmul(q.variance, error, error), q.variance / p.variance
        # Sums over rows first: what is the same for all of them is then computed once.
        ell = 0.5 * (torch.log(noise) + expected.mean(dim=-1, keepdim=True) / noise + _LOG_2PI).mean(dim=over)
        kl = 0.5 * (torch.addcdiv(ratio, shift.square(), p.variance) - torch.log(ratio)).mean(dim=over) - 0.5
        by_noise, by_p = 1 / (entries * noise), (beta / entries) / p.variance
        of_mean = torch.addcmul(error * by_noise, shift, by_p)
        of_variance = (by_p - (beta / entries) / q.variance + by_noise).mul_(0.5)
        of_noise = (0.5 * by_noise * (y.shape[-1] - expected.sum(dim=-1, keepdim=True) / noise)).squeeze(-1)
        return GuidedTerms(ell, kl, of_mean, of_variance, of_noise)


def _terms_of_one(q: Marginals, p: Marginals, y: Tensor, noise: Tensor, beta: float) -> GuidedTerms:
    """`guided_terms` of one output, with plain numbers where a tensor would have one entry."""
    n, sigma2 = len(y), float(noise)
    error, shift, ratio = q.mean - y, q.mean - p.mean, q.variance / p.variance
    expected = float(torch.dot(error, error) + q.variance.sum())
    ell = 0.5 * (_LOG_2PI + math.log(sigma2) + expected / (n * sigma2))
    kl = 0.5 * (float((torch.addcdiv(ratio, shift.square(), p.variance) - ratio.log()).sum()) / n - 1)
    by_noise, by_p = 1 / (n * sigma2), (beta / n) / p.variance
    of_mean = error.mul_(by_noise).addcmul_(shift, by_p)
    of_variance = by_p.addcdiv_(q.variance.new_tensor(-beta / n), q.variance).add_(by_noise).mul_(0.5)
    of_noise = 0.5 * by_noise * (n - expected / sigma2)
    return GuidedTerms(noise.new_tensor(ell), noise.new_tensor(kl), of_mean, of_variance, noise.new_tensor(of_noise))


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
