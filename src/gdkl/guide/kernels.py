"""Anything that can guide: an infinite network, a GPyTorch kernel or a plain function, as one kernel function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import gpytorch
import torch
from torch import Tensor

from gdkl.gp import GPyTorchKernel, KernelFunction
from gdkl.infinite import InfiniteNetwork
from gdkl.numerics import DataError, OptionError, chunk_slices

#: What users may pass as ``guide``. A function takes two sets of rows and returns their covariances.
GuideKernel: TypeAlias = "InfiniteNetwork | gpytorch.kernels.Kernel | Callable[[Tensor, Tensor], Tensor]"

#: Rows at a time where a plain function's variances are read off the diagonal of small squares.
_DIAGONAL_CHUNK = 256


class InfiniteKernelFunction:
    """The NNGP covariance of an infinite network as a `KernelFunction`."""

    def __init__(self, network: InfiniteNetwork):
        self.network = network

    def cross(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Covariances between two sets of rows."""
        return _for_each(x1, x2, self.network.kernel)

    def gram(self, x: Tensor) -> Tensor:
        """Covariances of a set of rows with itself."""
        return _for_each(x, None, lambda a, _: self.network.kernel(a))

    def diagonal(self, x: Tensor) -> Tensor:
        """Variances of the rows."""
        return _for_each(x, None, lambda a, _: self.network.diagonal(a))


class PlainKernelFunction:
    """A user's function ``k(x1, x2) -> covariances`` over 2-D tensors as a `KernelFunction`."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]):
        self.function = function

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
        K = self.function(x1, x2)
        expected = (x1.shape[0], x2.shape[0])
        if not isinstance(K, Tensor) or tuple(K.shape) != expected:
            shape = tuple(K.shape) if isinstance(K, Tensor) else type(K).__name__
            raise DataError(f"the guide's function must return a tensor of shape {expected}; got {shape}.")
        return K.to(x1)


def _for_each(x1: Tensor, x2: Tensor | None, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Apply a function of 2-D rows to each entry of the leading dimensions and stack the results."""
    if x1.dim() == 2 and (x2 is None or x2.dim() == 2):
        return function(x1, x1 if x2 is None else x2)
    other = x1 if x2 is None else x2
    batch = torch.broadcast_shapes(x1.shape[:-2], other.shape[:-2])
    first = x1.expand(*batch, *x1.shape[-2:]).reshape(-1, *x1.shape[-2:])
    second = other.expand(*batch, *other.shape[-2:]).reshape(-1, *other.shape[-2:])
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
