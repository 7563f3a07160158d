"""Means over pixels of a state: poolings and read-outs."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gdkl.infinite.program import Pool
from gdkl.infinite.spatial import Window, images_needed
from gdkl.infinite.state import Pixels, State
from gdkl.infinite.sums import deficit_of_distance, distances, mean_scale, weighted_sum

#: Distances below so many ulps of what they are the difference of count as zero.
SNAP = 16


def flattened(state: State) -> State:
    """The mean over the pixels of one state per pixel; vectors stay as they are."""
    if state.pixels is Pixels.NONE:
        return state
    state = state.same_pixels()

    def spread(array: Tensor) -> Tensor:
        return array.mean(dim=(-2, -1), keepdim=True)

    q1 = spread(state.q1)
    q2 = q1 if state.q2 is state.q1 else spread(state.q2)
    return _of_one_pixel(weighted_sum([state], spread, replace(state, q1=q1, q2=q2), w=1.0, b=0.0))


def pooled(state: State, op: Pool) -> State:
    """The mean over all pairs of pixels of two windows, or of two images."""
    if state.pixels is not Pixels.PAIRS:
        raise images_needed(op.layer)
    if op.window is not None:
        return _pool(state, op.window, normalise_edges=op.normalise_edges)
    size = (state.q1.shape[-2], state.q1.shape[-1])
    whole = Window(size, size, "valid", "zeros")
    return _of_one_pixel(_pool(state, whole, normalise_edges=False).same_pixels())


def _of_one_pixel(state: State) -> State:
    """Vectors out of images of one pixel."""
    return state.map_pairs(
        lambda array: array[..., 0, 0], q1=state.q1[..., 0, 0], q2=state.q2[..., 0, 0], pixels=Pixels.NONE
    )


def _pool(state: State, window: Window, *, normalise_edges: bool) -> State:
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
