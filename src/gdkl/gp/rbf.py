"""The RBF kernel as one block primitive with its gradient written out: few passes over n x n arrays, exact diagonal.

A row a is extended by −½|a|² and 1, so that one product with the rows b gives S = −½|a − b|² = a·b − ½|a|² − ½|b|² for
all pairs. The rows are centred first: this form loses digits in proportion to the squared distance from the origin.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

_LOG2_E = math.log2(math.e)

#: Covariances below this part of the scale, e⁻⁸⁰, are kept there: far below the rounding error of any sum, and clear of
#: numbers so small that processors take ten times as long over them.
LOWEST_EXPONENT = -80 * _LOG2_E


def _extend(x: Tensor, centre: Tensor) -> Tensor:
    """Rows a = x − centre with −½|a|² and 1 as further columns, ``(..., n, d + 2)``."""
    d = x.shape[-1]
    extended = x.new_empty(*torch.broadcast_shapes(x.shape[:-1], (*centre.shape[:-2], 1)), d + 2)
    a = extended[..., :d]
    torch.sub(x, centre, out=a)
    torch.mul(a.square().sum(dim=-1, keepdim=True), -0.5, out=extended[..., d : d + 1])
    extended[..., d + 1] = 1
    return extended


def _similarities(first: Tensor, rows: Tensor, factor: Tensor | None = None) -> Tensor:
    """S of extended rows, ``(..., n1, n)``, times a factor ``(..., 1, 1)``; rounding may leave it above zero."""
    b = torch.cat([first[..., :-2], first[..., -1:], first[..., -2:-1]], dim=-1)
    return (b if factor is None else b * factor) @ rows.mT


def _symmetric(matrix: Tensor) -> Tensor:
    """Exactly symmetric: neither a product nor an exponential need be so to the last bit."""
    return (matrix + matrix.mT).mul_(0.5)


def squared_distances(x1: Tensor, x2: Tensor | None = None) -> Tensor:
    """Squared Euclidean distances ``(..., n1, n2)`` between rows, or between those of a set with itself. No gradients.

    Of a set with itself they are exactly symmetric, with zeros on the diagonal.

    Example:
        >>> squared_distances(torch.tensor([[0.0], [3.0]]))
        tensor([[0., 9.],
                [9., 0.]])
    """
    with torch.no_grad():
        centre = (x1 if x2 is None else x2).mean(dim=-2, keepdim=True)
        first = _extend(x1, centre)
        distances = _similarities(first, first if x2 is None else _extend(x2, centre)).mul_(-2).clamp_min_(0)
        if x2 is None:
            distances = _symmetric(distances)
            distances.diagonal(dim1=-2, dim2=-1).zero_()
        return distances


class RBFBlock(NamedTuple):
    """Kernel K ``(..., n1, n)`` of rows b with rows a, and these rows extended: ``first`` are b, ``rows`` are a."""

    K: Tensor
    first: Tensor
    rows: Tensor


def rbf_block(
    x: Tensor, first: int | Tensor, lengthscale: Tensor, scale: Tensor, *, symmetric: bool = False
) -> RBFBlock:
    """The kernel s·exp(−|a − b|² / 2ℓ²) of rows b with rows a; its diagonal is exactly s where b are rows of x.

    Shapes: rows a ``(..., n, d)``, lengthscale ``(..., 1, 1)``, scale ``(...)``. The rows b are ``first``, ``(..., n1,
    d)``, or so many of the leading rows of x. The centre is theirs: they are the training rows wherever new rows are
    predicted, and a prediction must not depend on its batch. ``symmetric`` is for b that are all rows of x and a result
    that is to be exactly so. No gradients.

    Example:
        >>> rbf_block(torch.tensor([[0.0], [2.0]]), 1, torch.ones(1, 1), torch.tensor(3.0)).K.round(decimals=4)
        tensor([[3.0000, 0.4060]])
    """
    # Features of lower precision than the algebra: a network for images.
    x = x.to(torch.promote_types(x.dtype, lengthscale.dtype))
    if isinstance(first, int):
        rows = _extend(x, x[..., :first, :].mean(dim=-2, keepdim=True))
        b = rows[..., :first, :]
    else:
        first = first.to(x)
        centre = first.mean(dim=-2, keepdim=True)
        rows, b = _extend(x, centre), _extend(first, centre)
    # Exponents in powers of two.
    K = _similarities(b, rows, _LOG2_E * lengthscale.pow(-2)).clamp_(LOWEST_EXPONENT, 0)
    if isinstance(first, int):
        K.diagonal(dim1=-2, dim2=-1).zero_()
    K.exp2_().mul_(scale[..., None, None])
    return RBFBlock(_symmetric(K) if symmetric else K, b, rows)


def rbf_gradient(block: RBFBlock, P: Tensor, lengthscale: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    """From P = G∘K, G the gradient by a block, to those by rows b, rows a, lengthscale and scale. No autograd.

    ∂/∂s = ΣP / s and ∂/∂S = P / ℓ². As S is a quadratic form, twice ΣP∘S is the inner product of its derivative with
    the rows: S itself need not be kept.
    """
    _, first, rows = block
    # The column of ones gives the row and column sums in the same pass as the products, and a narrow matrix is faster
    # from the left than from the right.
    to_rows, to_first = (first.mT @ P).mT, (rows.mT @ P.mT).mT
    pulls = [
        torch.addcmul(to[..., :-2], to[..., -1:], own[..., :-2], value=-1)
        for to, own in ((to_first, first), (to_rows, rows))
    ]
    twice_PS = sum(
        (pull * own[..., :-2]).sum(dim=(-2, -1), keepdim=True) for pull, own in zip(pulls, block[1:], strict=True)
    )
    of_first, of_rows = (pull.mul_(lengthscale.pow(-2)) for pull in pulls)
    return of_first, of_rows, -twice_PS / lengthscale**3, to_first[..., -1].sum(dim=-1) / scale


def sum_to(value: Tensor, shape: torch.Size) -> Tensor:
    """Undo broadcasting: sum over the dimensions that were stretched."""
    return value if value.shape == shape else value.sum_to_size(shape)


class _RBF(Function):
    """The kernel of rows b with rows a under autograd; see `rbf_block`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, others: Tensor | None, lengthscale: Tensor, scale: Tensor, count: int, symmetric: bool
    ) -> Tensor:
        first = count if others is None else others
        block = rbf_block(x, first, lengthscale, scale, symmetric=symmetric)
        ctx.shapes = x.shape, None if others is None else others.shape
        ctx.save_for_backward(*block, lengthscale, scale)
        return block.K

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        *block, lengthscale, scale = cast("tuple[Tensor, ...]", ctx.saved_tensors)
        of = rbf_gradient(RBFBlock(*block), gradients[0] * block[0], lengthscale, scale)
        of_first, of_x, of_lengthscale, of_scale = of
        x_shape, others_shape = ctx.shapes
        if others_shape is None:
            of_x[..., : of_first.shape[-2], :] += of_first
        of_others = None if others_shape is None else sum_to(of_first, others_shape)
        of_kernel = sum_to(of_lengthscale, lengthscale.shape), sum_to(of_scale, scale.shape)
        return sum_to(of_x, x_shape), of_others, *of_kernel, None, None


def scaled_rbf(x1: Tensor, x2: Tensor | None, lengthscale: Tensor, scale: Tensor) -> Tensor:
    """Kernel s·exp(−|a − b|² / 2ℓ²) between rows, ``(..., n1, n2)``, or of a set with itself where x2 is None.

    The lengthscale is ``(..., 1, 1)``, or ``(..., 1, d)`` for one per column, the scale ``(...)``. Of a set with itself
    the kernel is exactly symmetric, with the diagonal exactly ``scale``.

    Example:
        >>> scaled_rbf(torch.zeros(2, 1), None, torch.ones(1, 1), torch.tensor(4.0))
        tensor([[4., 4.],
                [4., 4.]])
    """
    x1, x2, lengthscale = _one_lengthscale(x1, x2, lengthscale)
    return cast(Tensor, _RBF.apply(x1, x2, lengthscale, scale, x1.shape[-2], x2 is None)).mT


def leading_rbf(x: Tensor, count: int, lengthscale: Tensor, scale: Tensor) -> Tensor:
    """Kernel of the first ``count`` rows with all of them, ``(..., count, n)``, the diagonal exactly ``scale``.

    This is what a training step needs: the first rows are those observed, so K₁₁ and K₁₂ lie beside each other.

    Example:
        >>> leading_rbf(torch.zeros(3, 1), 2, torch.ones(1, 1), torch.tensor(4.0)).shape
        torch.Size([2, 3])
    """
    x, _, lengthscale = _one_lengthscale(x, None, lengthscale)
    return cast(Tensor, _RBF.apply(x, None, lengthscale, scale, count, False))


def _one_lengthscale(x1: Tensor, x2: Tensor | None, lengthscale: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    """Rows in units of one lengthscale per column, and ones in its place; all as they are if it is one already."""
    if lengthscale.shape[-1] == 1:
        return x1, x2, lengthscale
    return x1 / lengthscale, None if x2 is None else x2 / lengthscale, torch.ones_like(lengthscale[..., :1])
