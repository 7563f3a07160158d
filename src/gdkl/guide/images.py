"""Guides over images: the algebra keeps rows flat, the infinite network sees them as images again."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor

from gdkl.gp import KernelFunction
from gdkl.guide.kernels import GuideKernel, InfiniteKernelFunction, PlainKernelFunction, as_kernel_function
from gdkl.infinite import InfiniteNetwork
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

    Example:
        >>> from gdkl import infinite
        >>> net = infinite.Sequential(infinite.Conv2d(3), infinite.ReLU(), infinite.Flatten(), infinite.Linear())
        >>> image_kernel_function(net, (1, 4, 4)).gram(torch.ones(2, 16)).shape
        torch.Size([2, 2])
    """
    if isinstance(kernel, InfiniteNetwork):
        if not takes_images(kernel, image_shape):
            return InfiniteKernelFunction(kernel)
        return InfiniteKernelFunction(cast(Any, _Unflattened(kernel, image_shape)))
    if isinstance(wrapped := as_kernel_function(kernel), PlainKernelFunction):
        function = wrapped.function
        return PlainKernelFunction(
            lambda x1, x2: function(x1.unflatten(-1, image_shape), x2.unflatten(-1, image_shape))
        )
    return wrapped


def takes_images(network: InfiniteNetwork, image_shape: tuple[int, ...]) -> bool:
    """Whether a network gives a covariance for images of this shape; a dense one wants them flat.

    Raises:
        DataError: If it takes neither the images nor their flat rows.
    """
    images = torch.linspace(-1, 1, 2 * math.prod(image_shape)).reshape(2, *image_shape)
    try:
        network.kernel(images)
    except DataError as of_images:
        try:
            network.kernel(images.flatten(1))
        except DataError:
            raise DataError(f"the guide does not take images of shape {image_shape}: {of_images}") from of_images
        return False
    return True
