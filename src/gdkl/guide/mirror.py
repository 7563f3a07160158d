"""Kernels over images that do not know left from right."""

from __future__ import annotations

import torch
from torch import Tensor

from gdkl.gp import KernelFunction
from gdkl.numerics import chunk_slices

#: Images whose covariances with their mirror images are taken at a time, out of a block of so many squared.
_ROWS_AT_A_TIME = 64


def mirror_images(rows: Tensor, image_shape: tuple[int, ...]) -> Tensor:
    """Flat rows of the mirror images of flat rows ``(..., channels · height · width)``.

    Example:
        >>> mirror_images(torch.arange(6.0), (1, 2, 3)).tolist()
        [2.0, 1.0, 0.0, 5.0, 4.0, 3.0]
    """
    return rows.unflatten(-1, image_shape).flip(-1).flatten(-len(image_shape))


class MirroredKernel:
    """The mean of a kernel's covariances with an image and with its mirror image.

    That is the kernel of the function's even part under mirroring, times one half, if the kernel itself does not care
    which of the two ways a *pair* of images is turned: infinite networks do not.

    Args:
        kernel: Over flat rows of images.
        image_shape: Channels, height and width.
    """

    def __init__(self, kernel: KernelFunction, image_shape: tuple[int, ...]):
        self.kernel = kernel
        self.image_shape = image_shape

    def gram(self, x: Tensor) -> Tensor:
        """Covariances of a set of rows with itself."""
        across = self.kernel.cross(x, mirror_images(x, self.image_shape))
        return (self.kernel.gram(x) + (across + across.mT) / 2) / 2

    def cross(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Covariances between two sets of rows."""
        return (self.kernel.cross(x1, x2) + self.kernel.cross(x1, mirror_images(x2, self.image_shape))) / 2

    def diagonal(self, x: Tensor) -> Tensor:
        """Variances of the rows."""
        across = [
            self.kernel.cross(part, mirror_images(part, self.image_shape)).diagonal(dim1=-2, dim2=-1)
            for part in (x[..., rows, :] for rows in chunk_slices(x.shape[-2], _ROWS_AT_A_TIME))
        ]
        return (self.kernel.diagonal(x) + torch.cat(across, dim=-1)) / 2
