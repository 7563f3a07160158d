"""Anything that can guide: an infinite network, a GPyTorch kernel or a plain function, as one kernel function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import gpytorch
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gdkl.gp import GPyTorchKernel, KernelFunction
from gdkl.infinite import (
    AvgPool2d,
    Conv2d,
    DenseChain,
    Flatten,
    GlobalAvgPool2d,
    InfiniteNetwork,
    RBFLayer,
    Residual,
    Sequential,
    closed_form,
)
from gdkl.numerics import DataError, OptionError, chunk_slices

#: What users may pass as ``guide``. A function takes two sets of rows and returns their covariances.
GuideKernel: TypeAlias = "InfiniteNetwork | gpytorch.kernels.Kernel | Callable[[Tensor, Tensor], Tensor]"

#: From so many sets of rows on, of at most so many rows, their matrices are computed as pairs of rows, all at once: 128
#: sets of one row take 1.5 ms in place of 55, of 32 rows 48 in place of 57, and 32 sets of 64 rows 61 in place of 18.
_MANY_SETS, _FEW_ROWS = 8, 32
#: Up to so many rows of all sets, derivatives are those of one matrix of all of them: 3 ms for 4 sets of 64 rows, where
#: pairs under autograd take 10; twice as many rows take 10 ms and 5.
_FEW_ROWS_OF_ALL = 256

#: Rows at a time where a plain function's variances are read off the diagonal of small squares.
_DIAGONAL_CHUNK = 256


class _Gram(Function):
    """A Gram matrix in closed form: much shorter derivatives than those of autograd through each layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, form: DenseChain | RBFLayer) -> Tensor:
        K, ctx.pullback = form.gram(x)
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (G,) = gradients
        return ctx.pullback(0.5 * (G + G.mT)), None


class _Cross(Function):
    """Covariances with rows that have no gradient, likewise."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, z: Tensor, form: DenseChain | RBFLayer) -> Tensor:
        K, ctx.pullback = form.cross(x, z)
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ctx.pullback(gradients[0]), None, None


@dataclass(frozen=True, eq=False)
class InfiniteKernelFunction:
    """The NNGP covariance of an infinite network of rows, or of images that are given as flat rows."""

    network: InfiniteNetwork
    image_shape: tuple[int, ...] | None = None

    def cross(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Covariances between two sets of rows."""
        form = None if x2.requires_grad else self._closed_form(x1)
        if form is not None:
            return _for_each(lambda x, z: _apply(_Cross, x, z, form), None, x1, x2)
        return _for_each(self.network.kernel, self.image_shape, x1, x2)

    def gram(self, x: Tensor) -> Tensor:
        """Covariances of a set of rows with itself."""
        *sets, n, d = x.shape
        form = self._closed_form(x)
        if form is not None and math.prod(sets) * n <= _FEW_ROWS_OF_ALL:
            # The sets are blocks on the diagonal of one matrix.
            whole = _apply(_Gram, x.reshape(-1, d), form).unflatten(0, (-1, n)).unflatten(-1, (-1, n))
            blocks = whole.diagonal(dim1=0, dim2=2).movedim(-1, 0).reshape(*sets, n, n)
            return 0.5 * (blocks + blocks.mT)
        if self.image_shape is not None or math.prod(sets) < _MANY_SETS or n > _FEW_ROWS:
            return _for_each(self.network.kernel, self.image_shape, x)
        x1, x2 = (part.expand(*sets, n, n, d).reshape(-1, d) for part in (x.unsqueeze(-2), x.unsqueeze(-3)))
        K = self.network.pairs(x1, x2).unflatten(0, (*sets, n, n))
        return 0.5 * (K + K.mT)

    def diagonal(self, x: Tensor) -> Tensor:
        """Variances of the rows."""
        form = self._closed_form(x)
        return _for_each(self.network.diagonal, self.image_shape, x) if form is None else form.diagonal(x)

    def _closed_form(self, x: Tensor) -> DenseChain | RBFLayer | None:
        """For gradients by rows, where the network has one."""
        wanted = x.requires_grad and torch.is_grad_enabled() and self.image_shape is None
        return closed_form(self.network) if wanted else None


@dataclass(frozen=True, eq=False)
class PlainKernelFunction:
    """A user's function ``k(x1, x2) -> covariances`` over 2-D tensors, or over images, as a `KernelFunction`."""

    function: Callable[[Tensor, Tensor], Tensor]
    image_shape: tuple[int, ...] | None = None

    def cross(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Covariances between two sets of rows."""
        return _for_each(self._call, self.image_shape, x1, x2)

    def gram(self, x: Tensor) -> Tensor:
        """Covariances of a set of rows with itself."""
        K = self.cross(x, x)
        return 0.5 * (K + K.mT)

    def diagonal(self, x: Tensor) -> Tensor:
        """Variances of the rows."""

        def of_one(rows: Tensor) -> Tensor:
            parts = chunk_slices(rows.shape[0], _DIAGONAL_CHUNK)
            return torch.cat([self._call(rows[part], rows[part]).diagonal() for part in parts])

        return _for_each(of_one, self.image_shape, x)

    def _call(self, x1: Tensor, x2: Tensor) -> Tensor:
        K = self.function(x1, x2)
        expected = (x1.shape[0], x2.shape[0])
        if not isinstance(K, Tensor) or tuple(K.shape) != expected:
            shape = tuple(K.shape) if isinstance(K, Tensor) else type(K).__name__
            raise DataError(f"the guide's function must return a tensor of shape {expected}; got {shape}.")
        return K.to(x1)


@dataclass(frozen=True, eq=False)
class ScaledColumns:
    """A kernel function of rows whose columns are multiplied by factors ``(d,)``."""

    kernel: KernelFunction
    factors: Tensor

    def cross(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Covariances between two sets of rows."""
        return self.kernel.cross(x1 * self.factors.to(x1), x2 * self.factors.to(x2))

    def gram(self, x: Tensor) -> Tensor:
        """Covariances of a set of rows with itself."""
        return self.kernel.gram(x * self.factors.to(x))

    def diagonal(self, x: Tensor) -> Tensor:
        """Variances of the rows."""
        return self.kernel.diagonal(x * self.factors.to(x))


def _apply(function: type[Function], *inputs: Any) -> Tensor:
    return cast(Any, function).apply(*inputs)


def _for_each(function: Callable[..., Tensor], image_shape: tuple[int, ...] | None, *sets: Tensor) -> Tensor:
    """Apply a function of 2-D rows, or of their images, to each entry of the leading dimensions; stack the results."""
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in sets))
    flat = [x.expand(*batch, *x.shape[-2:]).reshape(batch.numel(), *x.shape[-2:]) for x in sets]
    seen = flat if image_shape is None else [x.unflatten(-1, image_shape) for x in flat]
    results = [function(*each) for each in zip(*seen, strict=True)]
    return torch.stack(results).unflatten(0, batch) if batch else results[0]


def as_kernel_function(kernel: GuideKernel) -> KernelFunction:
    """Wrap whatever the user gave as the guide.

    Example:
        >>> from gdkl import infinite
        >>> k = as_kernel_function(infinite.mlp(hidden_layers=1))
        >>> k.gram(torch.zeros(2, 3, dtype=torch.float64)).shape
        torch.Size([2, 2])
    """
    if isinstance(kernel, InfiniteNetwork):
        return InfiniteKernelFunction(kernel)
    if isinstance(kernel, gpytorch.kernels.Kernel):
        return GPyTorchKernel(kernel)
    if callable(kernel):
        return PlainKernelFunction(kernel)
    raise OptionError(
        f"guide={kernel!r} cannot guide: pass an infinite network (gdkl.infinite), a GPyTorch kernel or a "
        "function k(x1, x2) that returns covariances."
    )


def image_kernel_function(kernel: GuideKernel, image_shape: tuple[int, ...]) -> KernelFunction:
    """Wrap whatever the user gave as the guide of a model for images, which the algebra keeps as flat rows.

    Infinite networks with convolutions and plain functions see images N × C × H × W; dense networks and GPyTorch
    kernels see them flat.

    Raises:
        DataError: If a network does not take images of this shape.

    Example:
        >>> from gdkl import infinite
        >>> net = infinite.Sequential(infinite.Conv2d(3), infinite.ReLU(), infinite.Flatten(), infinite.Linear())
        >>> image_kernel_function(net, (1, 4, 4)).gram(torch.ones(2, 16)).shape
        torch.Size([2, 2])
    """
    if isinstance(kernel, InfiniteNetwork) and takes_images(kernel):
        try:
            kernel.diagonal(torch.ones(1, *image_shape))
        except DataError as error:
            raise DataError(f"the guide does not take images of shape {image_shape}: {error}") from error
        return InfiniteKernelFunction(kernel, image_shape)
    wrapped = as_kernel_function(kernel)
    return PlainKernelFunction(wrapped.function, image_shape) if isinstance(wrapped, PlainKernelFunction) else wrapped


def takes_images(network: InfiniteNetwork) -> bool:
    """Whether a network has a layer that only images have a meaning for; a dense one takes them flat."""
    if isinstance(network, Sequential):
        return any(takes_images(layer) for layer in network.layers)
    if isinstance(network, Residual):
        return takes_images(network.main) or takes_images(network.shortcut)
    return isinstance(network, Conv2d | AvgPool2d | GlobalAvgPool2d | Flatten)
