"""Layers of images: convolutions, poolings and read-outs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from gdkl.infinite import program
from gdkl.infinite.arrays import finite_number
from gdkl.infinite.finite import FiniteAvgPool2d, FiniteConv2d, FiniteFunction, image_mean
from gdkl.infinite.network import InfiniteNetwork, Spec
from gdkl.infinite.program import Convolve, Op
from gdkl.infinite.spatial import Padding, PaddingMode, Window, padding_of_spec, two_sizes
from gdkl.numerics import OptionError


class Conv2d(InfiniteNetwork):
    """A convolution: K(p, p') ← w · mean over taps o of K(s·p + o, s·p' + o) + b.

    The weight variance is divided by kernel area × channels, at borders too.

    Args:
        kernel_size: Height and width of the filter.
        stride: Steps between its positions.
        padding: Pixels on both sides, ``"valid"`` for none, or ``"same"`` for ⌈size / stride⌉ positions,
            with the smaller half of the padding before the image (stride 2 on an even size pads 0 and 1).
        padding_mode: ``"zeros"``, or ``"circular"`` to wrap around by the same amounts.
        weight_var: Variance w of the weights, before division by fan-in.
        bias_var: Variance b of the biases.

    Example:
        >>> import torch
        >>> import gdkl.infinite as inf
        >>> net = inf.Sequential(inf.Conv2d(3, padding="same"), inf.Flatten())
        >>> net.kernel(torch.ones(1, 1, 2, 2))
        tensor([[0.4444]])
    """

    _has_weights = True

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: Padding = 0,
        padding_mode: PaddingMode = "zeros",
        *,
        weight_var: float = 1.0,
        bias_var: float = 0.0,
    ) -> None:
        self.window = Window.read(kernel_size, stride, padding, padding_mode)
        self.weight_var = finite_number(weight_var, "weight_var", least=0.0)
        self.bias_var = finite_number(bias_var, "bias_var", least=0.0)

    def _ops(self) -> Iterator[Op]:
        yield Convolve(self.window, self.weight_var, self.bias_var)

    def _finite(self, width: int, outputs: int) -> nn.Module:
        return FiniteConv2d(outputs, self.window, self.weight_var, self.bias_var)

    def _own_spec(self) -> Spec:
        return {
            "op": "conv",
            "filter": list(self.window.size),
            **self.window.spec(),
            "w_var": self.weight_var,
            "b_var": self.bias_var,
        }

    def __repr__(self) -> str:
        variances = f"weight_var={self.weight_var!r}, bias_var={self.bias_var!r}"
        return f"Conv2d({window_arguments(self.window)}, {variances})"


def window_arguments(window: Window) -> str:
    """The arguments that make a window, for printing."""
    padding = 0 if window.padding == "valid" else window.padding
    sizes: dict[str, Any] = {"kernel_size": window.size, "stride": window.stride, "padding": padding}
    # One number where height and width agree.
    shown = {name: size[0] if isinstance(size, tuple) and size[0] == size[1] else size for name, size in sizes.items()}
    mode = "" if window.mode == "zeros" else f", padding_mode={window.mode!r}"
    return ", ".join(f"{name}={size!r}" for name, size in shown.items()) + mode


def conv_from_spec(
    filter: Any, strides: Any, padding: Any, *, w_var: float, b_var: float, padding_mode: Any = "zeros"
) -> Conv2d:
    """A convolution from the entries of its spec."""
    return Conv2d(filter, strides, *padding_of_spec(padding, padding_mode), weight_var=w_var, bias_var=b_var)


class AvgPool2d(InfiniteNetwork):
    """Average pooling: K(P, P') ← mean of K(p, p') over all pixels p of one window and p' of the other.

    It needs the covariances of all pairs of pixels, and the network carries them from the input on.

    Args:
        kernel_size: Height and width of the window.
        stride: Steps between windows; None for the window's size.
        padding: As for `Conv2d`.
        padding_mode: As for `Conv2d`.
        count_include_pad: Whether windows at the border divide by their whole size, padding included.

    Example:
        >>> import torch
        >>> import gdkl.infinite as inf
        >>> net = inf.Sequential(inf.AvgPool2d(2), inf.Flatten())
        >>> net.kernel(torch.tensor([[[[1.0, -1.0], [3.0, 1.0]]]]))
        tensor([[1.]])
    """

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: Padding = 0,
        padding_mode: PaddingMode = "zeros",
        *,
        count_include_pad: bool = True,
    ) -> None:
        self.window = Window.read(kernel_size, kernel_size if stride is None else stride, padding, padding_mode)
        self.count_include_pad = bool(count_include_pad)

    def _ops(self) -> Iterator[Op]:
        yield program.Pool(self.window, normalise_edges=not self.count_include_pad)

    def _finite(self, width: int, outputs: int) -> nn.Module:
        return FiniteAvgPool2d(self.window, count_include_pad=self.count_include_pad)

    def _own_spec(self) -> Spec:
        return {
            "op": "avgpool",
            "window": list(self.window.size),
            **self.window.spec(),
            "normalize_edges": not self.count_include_pad,
        }

    def __repr__(self) -> str:
        return f"AvgPool2d({window_arguments(self.window)}, count_include_pad={self.count_include_pad!r})"


class GlobalAvgPool2d(InfiniteNetwork):
    """Mean over the whole image: K ← mean of K(p, p') over all pairs of pixels.

    Example:
        >>> import torch
        >>> GlobalAvgPool2d().kernel(torch.tensor([[[[1.0, -1.0], [3.0, 1.0]]]]))
        tensor([[1.]])
    """

    def _ops(self) -> Iterator[Op]:
        yield program.Pool(None)

    def _finite(self, width: int, outputs: int) -> nn.Module:
        return FiniteFunction(image_mean, "global average")

    def _own_spec(self) -> Spec:
        return {"op": "global_avg_pool"}


class Flatten(InfiniteNetwork):
    """All pixels side by side as one vector: K ← mean of K(p, p) over the pixels.

    Example:
        >>> import torch
        >>> Flatten().kernel(torch.tensor([[[[1.0, -1.0], [3.0, 1.0]]]]))
        tensor([[3.]])
    """

    def _ops(self) -> Iterator[Op]:
        yield program.Flatten()

    def _finite(self, width: int, outputs: int) -> nn.Module:
        return nn.Flatten()

    def _own_spec(self) -> Spec:
        return {"op": "flatten"}


def pool_from_spec(
    window: Any, strides: Any, padding: Any, normalize_edges: bool = False, padding_mode: Any = "zeros"
) -> AvgPool2d:
    """An average pooling from the entries of its spec."""
    if not isinstance(normalize_edges, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"normalize_edges must be true or false; got {normalize_edges!r}.")
    words = padding_of_spec(padding, padding_mode)
    return AvgPool2d(window, two_sizes(strides, "stride", least=1), *words, count_include_pad=not normalize_edges)
