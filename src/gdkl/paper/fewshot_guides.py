"""The guides of the few-shot experiment, by name."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import torch
from torch import Tensor

from gdkl import infinite
from gdkl.gp import KernelFunction
from gdkl.guide import image_kernel_function
from gdkl.infinite import InfiniteNetwork
from gdkl.numerics import chunk_slices


class GuideName(StrEnum):
    """Which infinite network guides."""

    DENSE = "dense"
    """Three hidden ReLU layers over all pixels."""
    WIDE_RESNET_1 = "wide_resnet_1"
    """The paper's wide ResNet without pooling, one block a group."""
    WIDE_RESNET_4 = "wide_resnet_4"
    """The paper's wide ResNet without pooling, four blocks a group."""
    PUBLISHED = "published"
    """Four blocks a group over the published runs' layout: 3 x 32 pixels of 32 channels."""
    POOLED = "pooled"
    """Five convolutions with pooling between them and a global average at the end; takes a GPU."""


#: Test images whose covariances with the training images are computed at a time.
_ROWS_AT_A_TIME = 500


def guide_kernel(name: GuideName, image_shape: tuple[int, int, int]) -> KernelFunction:
    """Kernel of a guide over flat rows of images.

    Example:
        >>> guide_kernel(GuideName.DENSE, (3, 8, 8)).gram(torch.ones(2, 192)).shape
        torch.Size([2, 2])
    """
    if name is GuideName.PUBLISHED:
        channels, height, width = image_shape
        network = infinite.wide_resnet(blocks=4)
        # N, C, H, W read as N, H, W, C: the width holds what are taken for channels.
        return RelaidKernel(network, lambda rows: rows.unflatten(-1, (channels, height, width)).permute(0, 3, 1, 2))
    networks: dict[GuideName, Callable[[], InfiniteNetwork]] = {
        GuideName.DENSE: lambda: infinite.mlp(3, weight_var=1.6, bias_var=0.2),
        GuideName.WIDE_RESNET_1: lambda: infinite.wide_resnet(blocks=1),
        GuideName.WIDE_RESNET_4: lambda: infinite.wide_resnet(blocks=4),
        GuideName.POOLED: pooled_network,
    }
    return image_kernel_function(networks[name](), image_shape)


def pooled_network() -> InfiniteNetwork:
    """Conv, conv, and three times pool and conv, each convolution with a ReLU; then a global average."""

    def conv() -> list[InfiniteNetwork]:
        return [infinite.Conv2d(3, padding="same", weight_var=2.0, bias_var=0.1), infinite.ReLU()]

    layers = [*conv(), *conv()]
    for _ in range(3):
        layers += [infinite.AvgPool2d(2), *conv()]
    return infinite.Sequential(*layers, infinite.GlobalAvgPool2d(), infinite.Linear(1.0, 0.0))


class RelaidKernel:
    """An infinite network over rows that are laid out anew before it sees them.

    Args:
        network: The infinite network.
        lay_out: From flat rows ``(n, d)`` to what the network takes.
    """

    def __init__(self, network: InfiniteNetwork, lay_out: Callable[[Tensor], Tensor]):
        self.network = network
        self.lay_out = lay_out

    def gram(self, x: Tensor) -> Tensor:
        """Covariances of a set of rows with itself."""
        return _each(x, lambda rows: self.network.kernel(self.lay_out(rows).contiguous()))

    def cross(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Covariances between two sets of rows."""
        batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
        if batch:
            first, second = (x.expand(*batch, *x.shape[-2:]).flatten(0, -3) for x in (x1, x2))
            parts = [self.cross(a, b) for a, b in zip(first, second, strict=True)]
            return torch.stack(parts).unflatten(0, batch)
        other = self.lay_out(x2).contiguous()
        slices = chunk_slices(x1.shape[0], _ROWS_AT_A_TIME)
        return torch.cat([self.network.kernel(self.lay_out(x1[part]).contiguous(), other) for part in slices])

    def diagonal(self, x: Tensor) -> Tensor:
        """Variances of the rows."""
        return _each(x, lambda rows: self.network.diagonal(self.lay_out(rows).contiguous()))


def _each(x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function of 2-D rows to each entry of the leading dimensions."""
    if x.dim() == 2:
        return function(x)
    parts = [function(rows) for rows in x.flatten(0, -3)]
    return torch.stack(parts).unflatten(0, x.shape[:-2])
