"""What the student's latent marginals q say of the targets: the term in which the objectives differ.

Each data term is a mean over rows, and over outputs where targets are numbers, ``(members,)``; to be minimised.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import one_hot

from gdkl.gp import Marginals

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
    """Mean of E_q[−log N(y; f, σ²)] over outputs and rows.

    Args:
        q: Latent marginals, ``(members, outputs, n)``.
        y: Targets, same shape.
        noise: The student's noise variance, ``(members, outputs)``.
    """
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

    Args:
        q: Latent marginals, ``(members, classes, n)``.
        labels: Class numbers, ``(members, n)``.
        base: Base samples ε, ``(samples, classes)``, shared by all rows.

    Returns:
        ``(members, n)``.

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

    Args:
        q: Latent marginals, ``(members, classes, n)``.
        labels: Class numbers, ``(members, n)``.
        base: Standard normal numbers, ``(samples, members or 1, classes, n)``: each row has its own, which makes the
            gradient of a batch less noisy than numbers that all rows share.

    Returns:
        ``(members, n)``.

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
