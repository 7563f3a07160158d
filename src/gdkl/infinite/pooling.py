"""Poolings and read-outs: what brings pixels together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from gdkl.infinite import program
from gdkl.infinite.conv import window_arguments
from gdkl.infinite.finite import FiniteAvgPool2d, FiniteFunction, image_mean
from gdkl.infinite.network import InfiniteNetwork, Spec
from gdkl.infinite.parameters import plain_sizes
from gdkl.infinite.program import Op
from gdkl.infinite.spatial import Padding, PaddingMode, Window
from gdkl.numerics import OptionError


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
        self.window = Window.read(
            plain_sizes(kernel_size, "kernel_size"),
            plain_sizes(kernel_size if stride is None else stride, "stride"),
            plain_sizes(padding, "padding"),
            padding_mode,
        )
        self.count_include_pad = bool(count_include_pad)

    def _ops(self) -> Iterator[Op]:
        yield program.Pool(self.window, normalise_edges=not self.count_include_pad)

    def _finite(self, width: int, outputs: int) -> nn.Module:
        del width, outputs
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
        del width, outputs
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
        del width, outputs
        return nn.Flatten()

    def _own_spec(self) -> Spec:
        return {"op": "flatten"}


def pool_from_spec(
    window: Any, strides: Any, padding: Any, normalize_edges: bool = False, padding_mode: Any = "zeros"
) -> AvgPool2d:
    """An average pooling from the entries of its spec."""
    if not isinstance(normalize_edges, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"normalize_edges must be true or false; got {normalize_edges!r}.")
    read = Window.from_spec(window, strides, padding, padding_mode)
    return AvgPool2d(read.size, read.stride, read.padding, read.mode, count_include_pad=not normalize_edges)
