"""The split posterior of an RBF deep kernel as one differentiable step: what guided training spends its time on.

`leading_rbf` followed by `condition` gives the same under autograd, from the same functions. As one function there is
one graph node instead of a dozen, and gradients of size n/2 x n are made in place.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gdkl.gp.conditioning import block_gradient, noise_gradient
from gdkl.gp.rbf import RBFBlock, rbf_block, rbf_gradient, sum_to
from gdkl.gp.solver import RELATIVE_VARIANCE_FLOOR, Marginals, Solver, per_row


class _SplitPosterior(Function):
    """See `rbf_split_posterior`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y1: Tensor, lengthscale: Tensor, scale: Tensor, noise: Tensor, name: str
    ) -> tuple[Tensor, Tensor]:
        n1, prior = y1.shape[-1], scale.unsqueeze(-1)
        block = rbf_block(x, n1, lengthscale, scale)
        solver = Solver.of(block.K[..., :n1], noise, name=name)
        mean, reduction, A, v = solver.project(block.K[..., n1:], y1)
        variance, floor = prior - reduction, RELATIVE_VARIANCE_FLOOR * prior
        ctx.of_noise = noise.shape
        ctx.save_for_backward(*block, lengthscale, scale, solver.L, A, v, variance > floor)
        return mean, torch.maximum(variance, floor)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        K, first, rows, lengthscale, scale, L, A, v, above_floor = cast("tuple[Tensor, ...]", ctx.saved_tensors)
        of_mean, of_variance = gradients
        of_variance, n1 = of_variance * above_floor, L.shape[-1]
        G = block_gradient(L, A, v, of_mean, -of_variance)
        grad_noise = noise_gradient(G, ctx.of_noise)
        of_first, of_x, of_lengthscale, of_scale = rbf_gradient(RBFBlock(K, first, rows), G.mul_(K), lengthscale, scale)
        of_x[..., :n1, :] += of_first
        grad_x = sum_to(of_x, torch.Size([*rows.shape[:-1], of_x.shape[-1]]))
        grad_scale = of_scale + of_variance.sum(dim=-1)
        return grad_x, None, sum_to(of_lengthscale, lengthscale.shape), grad_scale, grad_noise, None


def rbf_split_posterior(
    x: Tensor, y1: Tensor, lengthscale: Tensor, scale: Tensor, noise: Tensor, *, name: str
) -> Marginals:
    """Latent marginals ``(members, outputs, n2)`` of the later rows given noisy targets of the first ones.

    Features are ``(members, 1, n1 + n2, p)``, targets ``(members, outputs, n1)`` without a gradient to them, the
    lengthscale ``(members, outputs, 1, 1)``, scale and noise ``(members, outputs)``, the noise also row by row, as the
    targets; ``name`` is for numerical errors.

    Example:
        >>> x, one = torch.zeros(1, 1, 2, 3, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
        >>> q = rbf_split_posterior(x, 3 * one[..., None], one[..., None, None], one, 0.5 * one, name="an example")
        >>> print(round(q.mean.item(), 4), round(q.variance.item(), 4))
        2.0 0.3333
    """
    return Marginals(
        *cast("tuple[Tensor, Tensor]", _SplitPosterior.apply(x, y1, lengthscale, scale, per_row(noise, y1), name))
    )
