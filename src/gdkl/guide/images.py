"""Guides over images: the algebra keeps rows flat, the infinite network sees them as images again."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from gdkl.gp import KernelFunction
from gdkl.guide.kernels import GuideKernel, InfiniteKernelFunction, PlainKernelFunction, as_kernel_function
from gdkl.infinite import AvgPool2d, Conv2d, Flatten, GlobalAvgPool2d, InfiniteNetwork, Residual, Sequential
from gdkl.numerics import DataError


class _Unflattened:
    """An infinite network that takes flat rows and reads them as images."""

    def __init__(self, network: InfiniteNetwork, image_shape: tuple[int, ...]):
        self.network = network
        self.image_shape = image_shape

    def kernel(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Covariances between two sets of images."""
        other = None if x2 is None or x2 is x1 else x2.unflatten(-1, self.image_shape)
        return self.network.kernel(x1.unflatten(-1, self.image_shape), other)

    def diagonal(self, x: Tensor) -> Tensor:
        """Variances of the images."""
        return self.network.diagonal(x.unflatten(-1, self.image_shape))


def image_kernel_function(kernel: GuideKernel, image_shape: tuple[int, ...]) -> KernelFunction:
    """Wrap whatever the user gave as the guide of a model for images.

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
        return InfiniteKernelFunction(cast(Any, _Unflattened(kernel, image_shape)))
    wrapped = as_kernel_function(kernel)
    if isinstance(wrapped, PlainKernelFunction):
        function = wrapped.function
        return PlainKernelFunction(
            lambda x1, x2: function(x1.unflatten(-1, image_shape), x2.unflatten(-1, image_shape))
        )
    return wrapped


def takes_images(network: InfiniteNetwork) -> bool:
    """Whether a network has a layer that only images have a meaning for; a dense one takes them flat."""
    if isinstance(network, Sequential):
        return any(takes_images(layer) for layer in network.layers)
    if isinstance(network, Residual):
        return takes_images(network.main) or takes_images(network.shortcut)
    return isinstance(network, Conv2d | AvgPool2d | GlobalAvgPool2d | Flatten)
