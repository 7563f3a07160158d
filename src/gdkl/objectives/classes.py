"""Objectives of classification: what the student's latent beliefs say of the labels, and how far they are from p's."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import one_hot

from gdkl.gp import Marginals
from gdkl.objectives.gaussian import ObjectiveValue, gaussian_kl


class _SampledLogLikelihood(Function):
    """log mean_s softmax(μ + σ·ε_s)[y] and its gradient; see `sampled_log_likelihood`."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, deviation: Tensor, labels: Tensor, base: Tensor) -> Tensor:
        epsilon = base[:, None, :, None]
        f = torch.addcmul(mean, deviation, epsilon)
        P = torch.softmax(f, dim=-2)
        chosen = labels.unsqueeze(-2)
        # Not the logarithm of P: a probability may be too small for it.
        log_own = f.gather(-2, chosen.expand(len(base), *chosen.shape)).squeeze(-2) - torch.logsumexp(f, dim=-2)
        result = torch.logsumexp(log_own, dim=0) - math.log(len(base))
        # With w_s the share of sample s in the mean, ∂/∂f_s = w_s (1[y] − softmax(f_s)); Σ_s w_s = 1.
        w = torch.softmax(log_own, dim=0).unsqueeze(-2)
        own = one_hot(labels, mean.shape[-2]).movedim(-1, -2).to(mean)
        P.mul_(w)
        grad_mean = own - P.sum(dim=0)
        # Σ_s w_s ε_s for every class, kept where the class is the label's.
        pull = torch.einsum("smn,sc->mcn", w.squeeze(-2), base)
        grad_deviation = own * pull - torch.einsum("smcn,sc->mcn", P, base)
        ctx.save_for_backward(grad_mean, grad_deviation)
        return result

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        grad_mean, grad_deviation = cast("tuple[Tensor, Tensor]", ctx.saved_tensors)
        g = gradients[0].unsqueeze(-2)
        return g * grad_mean, g * grad_deviation, None, None


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
    return cast(Tensor, _SampledLogLikelihood.apply(q.mean, q.variance.sqrt(), labels, base.to(q.mean)))


def guided_classes(q: Marginals, p: Marginals, labels: Tensor, base: Tensor, beta: float | Tensor) -> ObjectiveValue:
    """The guided objective for labels: mean of −log mean_s softmax(f_s)[y] + β·KL(q‖p), the KL averaged over classes.

    The KL asks for no label: rows without one may follow those with one, and count in the KL alone.

    Args:
        q: Student's latent marginals on the held-out rows, ``(members, classes, n2)``.
        p: Guide's, same shape.
        labels: Held-out labels, of the first rows if not of all, ``(members, at most n2)``.
        base: Base samples, ``(samples, classes)``.
        beta: Weight of the KL term.
    """
    labelled = labels.shape[-1]
    seen = Marginals(q.mean[..., :labelled], q.variance[..., :labelled])
    nll = -sampled_log_likelihood(seen, labels, base).mean(dim=-1)
    kl = gaussian_kl(q, p).mean(dim=(-2, -1))
    return ObjectiveValue(nll + beta * kl, {"ell": nll, "kl": kl})


def cross_entropy(logits: Tensor, labels: Tensor) -> ObjectiveValue:
    """Mean of −log softmax(logits)[y]: what a network with a softmax head is trained on.

    Args:
        logits: ``(members, classes, n)``.
        labels: ``(members, n)``.
    """
    chosen = torch.log_softmax(logits, dim=-2).gather(-2, labels.unsqueeze(-2)).squeeze(-2)
    nll = -chosen.mean(dim=-1)
    return ObjectiveValue(nll, {"nll": nll})
