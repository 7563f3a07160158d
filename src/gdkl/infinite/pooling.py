"""Poolings and read-outs: what brings pixels together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from gdkl.infinite.conv import window_arguments
from gdkl.infinite.finite import FiniteAvgPool2d, FiniteFunction, image_mean
from gdkl.infinite.network import InfiniteNetwork, Spec
from gdkl.infinite.parameters import plain_sizes
from gdkl.infinite.spatial import Padding, PaddingMode, Window, images_needed
from gdkl.infinite.state import Pixels, State
from gdkl.infinite.sums import deficit_of_distance, distances, mean_scale, weighted_sum
from gdkl.numerics import OptionError

#: Distances below so many ulps of what they are the difference of count as zero.
SNAP = 16


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

    _needs_pairs = True

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

    def _propagate(self, state: State) -> State:
        if state.pixels is not Pixels.PAIRS:
            raise images_needed("AvgPool2d")
        return pool(state, self.window, normalise_edges=not self.count_include_pad)

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

    _needs_pairs = True

    def _propagate(self, state: State) -> State:
        if state.pixels is Pixels.NONE:
            raise images_needed("GlobalAvgPool2d")
        size = (state.q1.shape[-2], state.q1.shape[-1])
        new = pool(state, Window(size, size, "valid", "zeros"), normalise_edges=False).same_pixels()
        return new.map_pairs(
            lambda array: array[..., 0, 0], q1=new.q1[..., 0, 0], q2=new.q2[..., 0, 0], pixels=Pixels.NONE
        )

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

    def _propagate(self, state: State) -> State:
        if state.pixels is Pixels.NONE:
            return state
        state = state.same_pixels()

        def spread(array: Tensor) -> Tensor:
            return array.mean(dim=(-2, -1), keepdim=True)

        q1 = spread(state.q1)
        q2 = q1 if state.q2 is state.q1 else spread(state.q2)
        new = weighted_sum([state], spread, replace(state, q1=q1, q2=q2), w=1.0, b=0.0)
        return new.map_pairs(lambda array: array[..., 0, 0], q1=q1[..., 0, 0], q2=q2[..., 0, 0], pixels=Pixels.NONE)

    def _finite(self, width: int, outputs: int) -> nn.Module:
        del width, outputs
        return nn.Flatten()

    def _own_spec(self) -> Spec:
        return {"op": "flatten"}


def pool(state: State, window: Window, *, normalise_edges: bool) -> State:
    """Mean over all pairs of pixels of two windows.

    Distances of means are means of distances less the spread within either window,

        d' = mean d12 − ½·mean d11 − ½·mean d22,

    the means over pairs of pixels of P × P', P × P and P' × P'.
    """
    own1 = state if state.own1 is None else state.own1
    own2 = own1 if state.own2 is state.own1 else state if state.own2 is None else state.own2
    rho1 = mean_scale(own1.q1)
    rho2 = rho1 if own2 is own1 else mean_scale(own2.q1)
    q1, within1 = _pool_own(own1, rho1, window)
    q2, within2 = (q1, within1) if own2 is own1 else _pool_own(own2, rho2, window)
    padded = window.pad(state)
    frame = replace(padded, q1=q1, q2=q2)
    d, e = distances(padded, rho1, rho2)
    spread = frame.left(within1) / 2 + frame.right(within2) / 2
    between = window.mean_across(d)
    # What is left of two equal numbers is rounding, and would look like an angle of √ε.
    near = torch.where((between - spread) > SNAP * torch.finfo(d.dtype).eps * between, between - spread, 0)
    t = deficit_of_distance(frame, near, rho1, rho2)
    u = None
    if e is not None:
        between = window.mean_across(e)
        far = torch.where((between - spread) > SNAP * torch.finfo(d.dtype).eps * between, between - spread, 0)
        u = deficit_of_distance(frame, far, rho1, rho2)
    k = None if padded.k is None else window.mean_across(padded.k)
    ntk = None if padded.ntk is None else window.mean_across(padded.ntk)
    new = replace(frame, t=t, u=u, k=k, ntk=ntk)
    if not normalise_edges:
        return new
    # Means over the pixels inside the image alone: a factor for each window, which no correlation feels.
    inside = torch.ones_like(state.q1[:1])
    outside = replace(state, q1=inside, q2=inside, t=inside, u=None, k=None, ntk=None, pixels=Pixels.DIAGONAL)
    factor = 1 / window.mean(window.pad(outside).q1)
    both = new.left(factor) * new.right(factor)
    return replace(
        new,
        q1=q1 * factor.square(),
        q2=q2 * factor.square(),
        k=None if k is None else k * both,
        ntk=None if ntk is None else ntk * both,
    )


def _pool_own(own: State, rho: Tensor, window: Window) -> tuple[Tensor, Tensor]:
    """Variances of window means, and the mean distance of the pixels within a window."""
    padded = window.pad(own)
    d, _ = distances(padded, rho, rho)
    within = _same(window.mean_across(d))
    return _same(window.mean_across(padded.covariance())), within


def _same(array: Tensor) -> Tensor:
    return array.diagonal(dim1=-4, dim2=-2).diagonal(dim1=-3, dim2=-2)


def pool_from_spec(
    window: Any, strides: Any, padding: Any, normalize_edges: bool = False, padding_mode: Any = "zeros"
) -> AvgPool2d:
    """An average pooling from the entries of its spec.

    Example:
        >>> pool_from_spec([2, 2], [2, 2], "VALID").window.size
        (2, 2)
    """
    if not isinstance(normalize_edges, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"normalize_edges must be true or false; got {normalize_edges!r}.")
    read = Window.from_spec(window, strides, padding, padding_mode)
    return AvgPool2d(read.size, read.stride, read.padding, read.mode, count_include_pad=not normalize_edges)
