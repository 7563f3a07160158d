"""The split posterior of an RBF deep kernel as one differentiable step: what guided training spends its time on.

`leading_rbf` followed by `condition` gives the same under autograd, from the same functions. As one function there is
one graph node instead of a dozen, and gradients of size n/2 x n are made in place. On a CPU each member of a batch is
computed on its own: the matrices of one stay in the cache from one operation to the next, those of ten do not, and
members can be shared by threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gdkl.gp.conditioning import block_gradient, trace
from gdkl.gp.rbf import RBFBlock, rbf_block, rbf_gradient, sum_to
from gdkl.gp.solver import RELATIVE_VARIANCE_FLOOR, Marginals, Solver
from gdkl.numerics import thread_map

#: From this many observed rows on, members are computed one by one on a CPU: below it calls cost more than arithmetic.
_ROWS_APART = 64


def members_apart(rows: Tensor, n1: int) -> bool:
    """Whether the members of a batch are better computed one by one than in batched operations."""
    return rows.device.type == "cpu" and n1 >= _ROWS_APART


class KeptPosterior(NamedTuple):
    """What the gradient of a member, or of all at once, needs from the forward pass."""

    K: Tensor
    first: Tensor
    rows: Tensor
    lengthscale: Tensor
    scale: Tensor
    L: Tensor
    A: Tensor
    v: Tensor
    above_floor: Tensor


def split_posterior_forward(
    x: Tensor, y1: Tensor, lengthscale: Tensor, scale: Tensor, noise: Tensor, *, name: str
) -> tuple[Marginals, KeptPosterior]:
    """The posterior of `rbf_split_posterior` and what its gradient needs, without autograd; members may be left out."""
    n1, prior = y1.shape[-1], scale.unsqueeze(-1)
    block = rbf_block(x, n1, lengthscale, scale)
    solver = Solver.of(block.K[..., :n1], noise.unsqueeze(-1), name=name)
    mean, reduction, A, v = solver.project(block.K[..., n1:], y1)
    variance, floor = prior - reduction, RELATIVE_VARIANCE_FLOOR * prior
    kept = KeptPosterior(*block, lengthscale, scale, solver.L, A, v, variance > floor)
    return Marginals(mean, torch.maximum(variance, floor)), kept


def split_posterior_backward(kept: KeptPosterior, of_mean: Tensor, of_variance: Tensor) -> tuple[Tensor, ...]:
    """Gradients by features, lengthscale, scale and noise."""
    block = RBFBlock(*kept[:3])
    of_variance = of_variance * kept.above_floor
    G = block_gradient(kept.L, kept.A, kept.v, of_mean, -of_variance)
    n1 = kept.L.shape[-1]
    grad_noise = trace(G[..., :n1])
    of = rbf_gradient(block, G.mul_(block.K), kept.lengthscale, kept.scale)
    of.rows[..., :n1, :] += of.first
    grad_x = sum_to(of.rows, torch.Size([*block.rows.shape[:-1], block.rows.shape[-1] - 2]))
    grad_lengthscale = sum_to(of.lengthscale, kept.lengthscale.shape)
    return grad_x, grad_lengthscale, of.scale + of_variance.sum(dim=-1), grad_noise


class _SplitPosterior(Function):
    """See `rbf_split_posterior`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y1: Tensor, lengthscale: Tensor, scale: Tensor, noise: Tensor, name: str
    ) -> tuple[Tensor, Tensor]:
        inputs = (x, y1, lengthscale, scale, noise)
        ctx.apart = x.dim() == 4 and (len(x) == 1 or members_apart(x, y1.shape[-1]))
        # One output is no batch either: plain matrix products are called faster than batched ones.
        ctx.alone = ctx.apart and scale.shape[-1] == 1
        if ctx.apart:
            alone = ctx.alone
            parts = thread_map(len(x), lambda index: split_posterior_forward(*_pick(inputs, index, alone), name=name))
            q = Marginals(*_join([part[0] for part in parts], ctx.alone))
        else:
            parts = [split_posterior_forward(*inputs, name=name)]
            q = parts[0][0]
        ctx.save_for_backward(*(value for _, kept in parts for value in kept))
        return q

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        saved, size = cast("tuple[Tensor, ...]", ctx.saved_tensors), len(KeptPosterior._fields)
        kept = [KeptPosterior(*saved[start : start + size]) for start in range(0, len(saved), size)]
        if ctx.apart:
            alone = ctx.alone
            parts = thread_map(
                len(kept), lambda index: split_posterior_backward(kept[index], *_pick(gradients, index, alone))
            )
            grad_x, *others = _join(parts, ctx.alone)
        else:
            grad_x, *others = split_posterior_backward(kept[0], *gradients)
        return grad_x, None, *others, None


def _pick(values: Sequence[Tensor], member: int, alone: bool) -> list[Tensor]:
    """A member's part of each tensor, without the dimension of outputs where there is one alone."""
    return [value[member, 0] if alone else value[member] for value in values]


def _join(parts: Sequence[Sequence[Tensor]], alone: bool) -> list[Tensor]:
    """The members' parts as tensors again."""
    joined = [
        values[0].unsqueeze(0) if len(values) == 1 else torch.stack(values) for values in zip(*parts, strict=True)
    ]
    return [value.unsqueeze(1) for value in joined] if alone else joined


def rbf_split_posterior(
    x: Tensor, y1: Tensor, lengthscale: Tensor, scale: Tensor, noise: Tensor, *, name: str
) -> Marginals:
    """Latent marginals on the later rows given noisy targets on the first, under a scaled RBF.

    Args:
        x: Features, the observed rows first, ``(members, 1, n1 + n2, p)``.
        y1: Observed targets, ``(members, outputs, n1)``; no gradient flows to them.
        lengthscale: ``(members, outputs, 1, 1)``.
        scale: Output scale, ``(members, outputs)``.
        noise: Noise variances, ``(members, outputs)``.
        name: What the matrix K₁₁ + σ²I is, for numerical errors.

    Returns:
        Marginals without noise, ``(members, outputs, n2)``.

    Example:
        >>> x, one = torch.zeros(1, 1, 2, 3, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
        >>> q = rbf_split_posterior(x, 3 * one[..., None], one[..., None, None], one, 0.5 * one, name="an example")
        >>> print(round(q.mean.item(), 4), round(q.variance.item(), 4))
        2.0 0.3333
    """
    return Marginals(*cast("tuple[Tensor, Tensor]", _SplitPosterior.apply(x, y1, lengthscale, scale, noise, name)))
