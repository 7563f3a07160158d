"""The RBF kernel from squared distances, its gradient written out: few passes over n x n arrays, exact diagonal."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def squared_distances(x1: Tensor, x2: Tensor | None = None) -> Tensor:
    """Squared Euclidean distances between rows, zero on the diagonal of a set with itself. No gradients.

    The rows are centred first: the expansion |a|² + |b|² − 2a·b loses digits in proportion to the squared
    distance from the origin.

    Args:
        x1: Rows, shape ``(..., n1, d)``.
        x2: Rows, shape ``(..., n2, d)``; None for ``x1`` itself.

    Returns:
        Distances of shape ``(..., n1, n2)``, exactly symmetric for a set with itself.

    Example:
        >>> squared_distances(torch.tensor([[0.0], [3.0]]))
        tensor([[0., 9.],
                [9., 0.]])
    """
    with torch.no_grad():
        # The second set is the training rows wherever new rows are predicted: a centre taken from it keeps a
        # prediction independent of the batch it comes in.
        centre = (x1 if x2 is None else x2).mean(dim=-2, keepdim=True)
        a = x1 - centre
        b = a if x2 is None else x2 - centre
        distances = (a @ b.mT).mul_(-2)
        distances += a.square().sum(dim=-1).unsqueeze(-1)
        distances += b.square().sum(dim=-1).unsqueeze(-2)
        if x2 is None:
            # The product a·aᵀ need not be symmetric to the last bit; the kernel matrix must be.
            distances = (distances + distances.mT).mul_(0.5)
            distances.diagonal(dim1=-2, dim2=-1).zero_()
        return distances.clamp_min_(0)


class _ScaledRBF(Function):
    """K = s·exp(−D / 2ℓ²); see `scaled_rbf`."""

    @staticmethod
    def forward(ctx: Any, x1: Tensor, x2: Tensor | None, lengthscale: Tensor, scale: Tensor) -> Tensor:
        D = squared_distances(x1, x2)
        K = (D * (-0.5 / lengthscale.square())).exp_().mul_(scale[..., None, None])
        ctx.save_for_backward(x1, x2, lengthscale, scale, D, K)
        return K

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        # With P = G∘K: ∂/∂s = ΣP / s, ∂/∂ℓ = Σ(P∘D) / ℓ³, and ∂/∂D = H = −P / 2ℓ², summed over whatever shares D.
        x1, x2, lengthscale, scale, D, K = cast("tuple[Any, ...]", ctx.saved_tensors)
        P = gradients[0] * K
        grad_scale = sum_to(P.sum(dim=(-2, -1)), scale.shape) / scale
        along = torch.linalg.vecdot(P.flatten(-2), D.expand_as(P).flatten(-2))[..., None, None]
        grad_lengthscale = sum_to(along / lengthscale**3, lengthscale.shape)
        H = sum_to(P.mul_(-0.5 / lengthscale.square()), D.shape)
        # D_ij = |a_i − b_j|², so ∂/∂a_i = 2 Σ_j H_ij (a_i − b_j).
        if x2 is None:
            return _pull(H + H.mT, x1, x1), None, grad_lengthscale, grad_scale
        grad_x1 = sum_to(_pull(H, x1, x2), x1.shape)
        return grad_x1, sum_to(_pull(H.mT, x2, x1), x2.shape), grad_lengthscale, grad_scale


class _LeadingRBF(Function):
    """K = s·exp(S / ℓ²), S = −½|a − b|², of all rows a with the first few b; see `leading_rbf`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int, lengthscale: Tensor, scale: Tensor) -> Tensor:
        extended, K = rbf_block(x, count, lengthscale, scale)
        ctx.save_for_backward(extended, lengthscale, scale, K)
        return K.mT

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        # With P = G∘K: ∂/∂s = ΣP / s and ∂/∂S = P / ℓ². Because S is a quadratic form, twice ΣP∘S is the inner product
        # of its derivative with the rows: S itself need not be kept.
        extended, lengthscale, scale, K = cast("tuple[Tensor, ...]", ctx.saved_tensors)
        a, inverse_square = extended[..., :-2], lengthscale.pow(-2)
        pull, total = pull_towards(extended, gradients[0].mT * K)
        sum_PS = (pull * a).sum(dim=(-2, -1), keepdim=True)
        grad_lengthscale = sum_to(-(sum_PS * inverse_square) / lengthscale, lengthscale.shape)
        grad_scale = sum_to(total / scale, scale.shape)
        return sum_to(pull * inverse_square, a.shape), None, grad_lengthscale, grad_scale


_LOG2_E = math.log2(math.e)

#: Covariances below this part of the scale, e⁻⁸⁰, are kept there: far below the rounding error of any sum, and clear of
#: numbers so small that processors take ten times as long over them.
LOWEST_EXPONENT = -80 * _LOG2_E


def rbf_block(x: Tensor, count: int, lengthscale: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Kernel s·exp(−|a − b|² / 2ℓ²) of the first ``count`` rows b with all rows a. No gradients.

    Args:
        x: Rows, shape ``(..., n, d)``.
        count: Number of leading rows.
        lengthscale: Shape ``(..., 1, 1)``.
        scale: Shape ``(...)``.

    Returns:
        The rows as `pull_towards` takes them, and K of shape ``(..., count, n)`` with diagonal ``scale``.

    Example:
        >>> rbf_block(torch.tensor([[0.0], [2.0]]), 1, torch.ones(1, 1), torch.tensor(3.0))[1].round(decimals=4)
        tensor([[3.0000, 0.4060]])
    """
    # Features of lower precision than the algebra: a network for images.
    x = x.to(torch.promote_types(x.dtype, lengthscale.dtype))
    d = x.shape[-1]
    extended = x.new_empty(*x.shape[:-1], d + 2)
    a, minus_half = extended[..., :d], extended[..., d : d + 1]
    torch.sub(x, x[..., :count, :].mean(dim=-2, keepdim=True), out=a)
    torch.mul(a.square().sum(dim=-1, keepdim=True), -0.5, out=minus_half)
    extended[..., d + 1] = 1
    # One product gives the exponents, (a·b − ½|a|² − ½|b|²) / ℓ² in powers of two; rounding may leave them above zero.
    factor = _LOG2_E * lengthscale.pow(-2)
    first = extended[..., :count, :]
    b = torch.cat([first[..., :d], first[..., d + 1 :], first[..., d : d + 1]], dim=-1) * factor
    K = (b @ extended.mT).clamp_(LOWEST_EXPONENT, 0)
    K.diagonal(dim1=-2, dim2=-1).zero_()
    return extended, K.exp2_().mul_(scale[..., None, None])


def pull_towards(extended: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
    """Derivative of ΣP∘S by the rows that S = −½|a − b|² was made of, and ΣP. No gradients.

    Args:
        extended: Rows a with two columns more, of which the last is one, ``(..., n, d + 2)``; the first rows are the b.
        P: Weights, shape ``(..., count, n)``.

    Returns:
        Σ_j P_ji (b_j − a_i), with the b's own share added to their rows, shape ``(..., n, d)``; and the sum, ``(...)``.

    Example:
        >>> pull_towards(torch.tensor([[0.0, 0.0, 1.0], [2.0, 0.0, 1.0]]), torch.tensor([[1.0, 1.0]]))
        (tensor([[ 2.],
                [-2.]]), tensor(2.))
    """
    count = P.shape[-2]
    a = extended[..., :-2]
    # The column of ones gives the row and column sums in the same pass as the products, and a narrow matrix is faster
    # from the left than from the right.
    to_all = (extended[..., :count, :].mT @ P).mT
    to_first = (extended.mT @ P.mT).mT
    pull = torch.addcmul(to_all[..., :-2], to_all[..., -1:], a, value=-1)
    pull[..., :count, :] += to_first[..., :-2]
    pull[..., :count, :].addcmul_(to_first[..., -1:], a[..., :count, :], value=-1)
    return pull, to_first[..., -1].sum(dim=-1)


def _pull(H: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """2 Σ_j H_ij (a_i − b_j), the rows taken from a centre so that large offsets cancel before they are multiplied."""
    centre = b.mean(dim=-2, keepdim=True)
    return 2 * (H.sum(dim=-1, keepdim=True) * (a - centre) - H @ (b - centre))


def sum_to(value: Tensor, shape: torch.Size) -> Tensor:
    """Undo broadcasting: sum over the dimensions that were stretched."""
    return value if value.shape == shape else value.sum_to_size(shape)


def scaled_rbf(x1: Tensor, x2: Tensor | None, lengthscale: Tensor, scale: Tensor) -> Tensor:
    """Kernel s·exp(−|a − b|² / 2ℓ²) between rows.

    Args:
        x1: Rows, shape ``(..., n1, d)``.
        x2: Rows, shape ``(..., n2, d)``; None for ``x1`` itself.
        lengthscale: Shape ``(..., 1, 1)``, or ``(..., 1, d)`` for one a column.
        scale: Shape ``(...)``.

    Returns:
        Covariances ``(..., n1, n2)``; the diagonal of a set with itself is exactly ``scale``.

    Example:
        >>> scaled_rbf(torch.zeros(2, 1), None, torch.ones(1, 1), torch.tensor(4.0))
        tensor([[4., 4.],
                [4., 4.]])
    """
    if lengthscale.shape[-1] > 1:
        x1, x2 = x1 / lengthscale, None if x2 is None else x2 / lengthscale
        lengthscale = torch.ones_like(lengthscale[..., :1])
    return cast(Tensor, _ScaledRBF.apply(x1, x2, lengthscale, scale))


def leading_rbf(x: Tensor, count: int, lengthscale: Tensor, scale: Tensor) -> Tensor:
    """Kernel s·exp(−|a − b|² / 2ℓ²) of all rows with the first ``count`` of them, in one block.

    This is what a training step needs: the first rows are those observed, so K₁₁ and K₂₁ lie above each other.

    Args:
        x: Rows, shape ``(..., n, d)``.
        count: Number of leading rows.
        lengthscale: Shape ``(..., 1, 1)``, or ``(..., 1, d)`` for one a column.
        scale: Shape ``(...)``.

    Returns:
        Covariances ``(..., n, count)``; the diagonal is exactly ``scale``.

    Example:
        >>> leading_rbf(torch.zeros(3, 1), 2, torch.ones(1, 1), torch.tensor(4.0)).shape
        torch.Size([3, 2])
    """
    if lengthscale.shape[-1] > 1:
        x = x / lengthscale
        lengthscale = torch.ones_like(lengthscale[..., :1])
    return cast(Tensor, _LeadingRBF.apply(x, count, lengthscale, scale))
