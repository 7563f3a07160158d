# ruff: noqa: D102 - torch says what each method is
"""Finite torch networks whose width limit our kernels are: the modules that ``finite(width)`` is made of."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter

from gdkl.infinite.spatial import Window


class _Weights(LazyModuleMixin, nn.Module):  # pyright: ignore[reportUnsafeMultipleInheritance]
    """Weights of variance weight_var / fan-in and biases of variance bias_var, made at the first call."""

    # A parameter that becomes one: torch's own annotations have no word for that.
    weight: Any
    bias: nn.Parameter | None

    def __init__(self, outputs: int, weight_var: float, bias_var: float) -> None:
        super().__init__()  # pyright: ignore[reportAttributeAccessIssue]
        self.outputs, self.weight_var, self.bias_var = outputs, weight_var, bias_var
        self.weight = UninitializedParameter()
        self.bias = nn.Parameter(torch.empty(outputs)) if bias_var > 0 else None

    @abstractmethod
    def _weight_shape(self, x: Tensor) -> tuple[int, ...]:
        """Outputs first, then what a sum of inputs runs over."""

    def initialize_parameters(self, *args: Any, **_: Any) -> None:
        """Draw the weights once the number of input channels is known."""
        if not isinstance(self.weight, UninitializedParameter):
            return
        x: Tensor = args[0]
        shape = self._weight_shape(x)
        with torch.no_grad():
            self.weight.materialize(shape, device=x.device, dtype=x.dtype)
            self.weight.normal_(std=math.sqrt(self.weight_var / math.prod(shape[1:])))
            if self.bias is not None:
                self.bias.data = torch.empty(self.outputs, device=x.device, dtype=x.dtype)
                self.bias.normal_(std=math.sqrt(self.bias_var))


class FiniteLinear(_Weights):
    """A fully connected layer; on images it acts on the channels of each pixel."""

    def _weight_shape(self, x: Tensor) -> tuple[int, ...]:
        return (self.outputs, x.shape[1])

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 2:
            return functional.linear(x, self.weight, self.bias)
        return functional.conv2d(x, self.weight[:, :, None, None], self.bias)


class FiniteConv2d(_Weights):
    """A convolution that pads explicitly."""

    def __init__(self, outputs: int, window: Window, weight_var: float, bias_var: float) -> None:
        super().__init__(outputs, weight_var, bias_var)
        self.window = window

    def _weight_shape(self, x: Tensor) -> tuple[int, ...]:
        return (self.outputs, x.shape[1], *self.window.size)

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(pad_image(x, self.window), self.weight, self.bias, stride=self.window.stride)


class FiniteAvgPool2d(nn.Module):
    """Average pooling that pads explicitly."""

    def __init__(self, window: Window, *, count_include_pad: bool) -> None:
        super().__init__()
        self.window, self.count_include_pad = window, count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        mean = self._mean(x)
        return mean if self.count_include_pad else mean / self._mean(torch.ones_like(x[:1, :1]))

    def _mean(self, x: Tensor) -> Tensor:
        return functional.avg_pool2d(pad_image(x, self.window), self.window.size, self.window.stride)


class FiniteFunction(nn.Module):
    """A function without parameters."""

    def __init__(self, fn: Callable[[Tensor], Tensor], name: str) -> None:
        super().__init__()
        self.fn, self.name = fn, name

    def forward(self, x: Tensor) -> Tensor:
        return self.fn(x)

    def extra_repr(self) -> str:
        return self.name


class FiniteResidual(nn.Module):
    """The sum of two branches."""

    def __init__(self, main: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.main, self.shortcut = main, shortcut

    def forward(self, x: Tensor) -> Tensor:
        return self.main(x) + self.shortcut(x)


def pad_image(x: Tensor, window: Window) -> Tensor:
    """An image padded as a window asks."""
    (top, bottom), (left, right) = window.pads(x.shape[-2], x.shape[-1])
    mode: Literal["constant", "circular"] = "constant" if window.mode == "zeros" else "circular"
    return functional.pad(x, (left, right, top, bottom), mode=mode)


def image_mean(x: Tensor) -> Tensor:
    """Mean over the pixels of images."""
    return x.mean(dim=(-2, -1))


def channel_norm(x: Tensor, eps: float) -> Tensor:
    """Divide by the root mean square over channels: the layer norm of a wide layer, whose mean is zero."""
    return x * (x.square().mean(dim=1, keepdim=True) + eps).rsqrt()
