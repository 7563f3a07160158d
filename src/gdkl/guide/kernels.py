"""Anything that can guide: an infinite network, a GPyTorch kernel or a plain function, as one kernel function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import gpytorch
import torch
from torch import Tensor

from gdkl.gp import GPyTorchKernel, KernelFunction
from gdkl.infinite import AvgPool2d, Conv2d, Flatten, GlobalAvgPool2d, InfiniteNetwork, Residual, Sequential
from gdkl.numerics import DataError, OptionError, chunk_slices

#: What users may pass as ``guide``. A function takes two sets of rows and returns their covariances.
GuideKernel: TypeAlias = "InfiniteNetwork | gpytorch.kernels.Kernel | Callable[[Tensor, Tensor], Tensor]"

#: Rows at a time where a plain function's variances are read off the diagonal of small squares.
_DIAGONAL_CHUNK = 256


class InfiniteKernelFunction:
    """The NNGP covariance of an infinite network as a `KernelFunction`.

    Args:
        network: The network.
        image_shape: Channels, height and width of the images that it sees in flat rows; None for the rows themselves.
    """

    def __init__(self, network: InfiniteNetwork, image_shape: tuple[int, ...] | None = None):
        self.network = network
        self.image_shape = image_shape

    def cross(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Covariances between two sets of rows."""
        return _for_each(x1, x2, lambda a, b: self.network.kernel(self._seen(a), self._seen(b)))

    def gram(self, x: Tensor) -> Tensor:
        """Covariances of a set of rows with itself."""
        return _for_each(x, None, lambda a, _: self.network.kernel(self._seen(a)))

    def diagonal(self, x: Tensor) -> Tensor:
        """Variances of the rows."""
        return _for_each(x, None, lambda a, _: self.network.diagonal(self._seen(a)))

    def _seen(self, rows: Tensor) -> Tensor:
        return rows if self.image_shape is None else rows.unflatten(-1, self.image_shape)


class PlainKernelFunction:
    """A user's function ``k(x1, x2) -> covariances`` over 2-D tensors, or over images, as a `KernelFunction`."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], image_shape: tuple[int, ...] | None = None):
        self.function = function
        self.image_shape = image_shape

    def cross(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Covariances between two sets of rows."""
        return _for_each(x1, x2, self._call)

    def gram(self, x: Tensor) -> Tensor:
        """Covariances of a set of rows with itself."""
        K = self.cross(x, x)
        return 0.5 * (K + K.mT)

    def diagonal(self, x: Tensor) -> Tensor:
        """Variances of the rows."""

        def of_one(rows: Tensor, _: Tensor) -> Tensor:
            parts = chunk_slices(rows.shape[0], _DIAGONAL_CHUNK)
            return torch.cat([self._call(rows[part], rows[part]).diagonal() for part in parts])

        return _for_each(x, None, of_one)

    def _call(self, x1: Tensor, x2: Tensor) -> Tensor:
        seen = (x1, x2) if self.image_shape is None else (x.unflatten(-1, self.image_shape) for x in (x1, x2))
        K = self.function(*seen)
        expected = (x1.shape[0], x2.shape[0])
        if not isinstance(K, Tensor) or tuple(K.shape) != expected:
            shape = tuple(K.shape) if isinstance(K, Tensor) else type(K).__name__
            raise DataError(f"the guide's function must return a tensor of shape {expected}; got {shape}.")
        return K.to(x1)


def _for_each(x1: Tensor, x2: Tensor | None, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Apply a function of 2-D rows to each entry of the leading dimensions and stack the results."""
    other = x1 if x2 is None else x2
    if x1.dim() == 2 and other.dim() == 2:
        return function(x1, other)
    batch = torch.broadcast_shapes(x1.shape[:-2], other.shape[:-2])
    first, second = (x.expand(*batch, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (x1, other))
    results = torch.stack([function(a, b) for a, b in zip(first, second, strict=True)])
    return results.reshape(*batch, *results.shape[1:])


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

    Args:
        kernel: The guide.
        image_shape: Channels, height and width of the images behind the flat rows.

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
