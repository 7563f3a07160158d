"""Objectives of inducing-point models: a data term over a batch of rows, and what keeps the beliefs honest beside it.

DKL maximises the evidence bound, whose KL holds q(u) to the kernel's prior. GDKL has no such term: the guided KL on
the very rows of the batch takes its place.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import one_hot

from gdkl.gp import Marginals
from gdkl.objectives.gaussian import ObjectiveValue, expected_negative_log_likelihood, gaussian_kl

#: Latents sampled for the softmax's data term in training, as published.
SOFTMAX_SAMPLES = 16


class _ExpectedLogSoftmax(Function):
    """Mean over samples of log softmax(μ + σ·ε_s)[y] and its gradient; see `expected_log_softmax`."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, deviation: Tensor, labels: Tensor, base: Tensor) -> Tensor:
        f = torch.addcmul(mean, deviation, base)
        P = torch.softmax(f, dim=-2)
        own = one_hot(labels, mean.shape[-2]).movedim(-1, -2).to(mean)
        log_own = (f * own).sum(dim=-2) - torch.logsumexp(f, dim=-2)
        # ∂ log softmax(f_s)[y] / ∂f_s = 1[y] − softmax(f_s).
        P.neg_().add_(own)
        ctx.save_for_backward(P.mean(dim=0), P.mul_(base).mean(dim=0))
        return log_own.mean(dim=0)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        grad_mean, grad_deviation = cast("tuple[Tensor, Tensor]", ctx.saved_tensors)
        g = gradients[0].unsqueeze(-2)
        return g * grad_mean, g * grad_deviation, None, None


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
    return cast(Tensor, _ExpectedLogSoftmax.apply(q.mean, q.variance.sqrt(), labels, base.to(q.mean)))


def guided_softmax(q: Marginals, p: Marginals, labels: Tensor, base: Tensor, beta: float | Tensor) -> ObjectiveValue:
    """The guided objective of labels under a softmax: mean of E_q[−log p(y|f)] + β·KL(q‖p), averaged over classes.

    Args:
        q: Student's latent marginals, ``(members, classes, n)``.
        p: Guide's, ``(members or 1, classes, n)``.
        labels: ``(members, n)``.
        base: As for `expected_log_softmax`.
        beta: Weight of the KL term.
    """
    ell = -expected_log_softmax(q, labels, base).mean(dim=-1)
    kl = gaussian_kl(q, p).mean(dim=(-2, -1))
    return ObjectiveValue(ell + beta * kl, {"ell": ell, "kl": kl})


def evidence_bound(q: Marginals, y: Tensor, noise: Tensor, kl: Tensor, rows: int) -> ObjectiveValue:
    """Negative evidence bound a row of Gaussian targets, from a batch, averaged over outputs.

    Args:
        q: Latent marginals of the batch, ``(members, outputs, b)``.
        y: Targets, same shape.
        noise: Noise variances, ``(members, outputs)``.
        kl: KL(q(u) ‖ p(u)), ``(members, outputs)``.
        rows: Number of all training rows, over which that KL is shared.
    """
    ell = expected_negative_log_likelihood(q, y, noise.unsqueeze(-1)).mean(dim=(-2, -1))
    share = kl.mean(dim=-1) / rows
    return ObjectiveValue(ell + share, {"ell": ell, "kl_u": share})


def softmax_evidence_bound(
    q: Marginals, labels: Tensor, base: Tensor, kl: Tensor, rows: int, weight: float = 1.0
) -> ObjectiveValue:
    """Negative evidence bound a row of labels under a softmax, from a batch.

    Args:
        q: Latent marginals of the batch, ``(members, classes, b)``.
        labels: ``(members, b)``.
        base: As for `expected_log_softmax`.
        kl: KL(q(u) ‖ p(u)), ``(members, classes)``, summed over the classes.
        rows: Number of all training rows.
        weight: Of the KL; 1 for the bound itself.
    """
    ell = -expected_log_softmax(q, labels, base).mean(dim=-1)
    share = kl.sum(dim=-1) / rows
    return ObjectiveValue(ell + weight * share, {"ell": ell, "kl_u": share})
