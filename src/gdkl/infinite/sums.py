"""Sums of covariances over taps of a filter, pixels or branches, without cancellation in the deficits.

Deficits of correlations do not add; mean squared distances do. With any scale ρ for each input,

    d = q1/ρ1² + q2/ρ2² − 2k/(ρ1·ρ2) = (a1 − a2)² + 2·a1·a2·t,   a = √q/ρ,

sums as the covariances do, and gives the deficit of the sum back as t' = (d' − (a1' − a2')²) / (2·a1'·a2').
With ρ² the mean variance behind the sum, parallel inputs have d = 0 to the last bit whatever their lengths.
The same holds with 1 + c and the opposite sign of k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce

import torch
from torch import Tensor

from gdkl.infinite.program import Pool
from gdkl.infinite.spatial import Window, images_needed
from gdkl.infinite.state import Pixels, State, diagonal_pixels, safe_divide, safe_sqrt


def mean_scale(q: Tensor) -> Tensor:
    """√ of the mean variance of each input, one where it is zero; shaped as ``q`` with single pixels."""
    q = q.detach()
    mean = q if q.ndim == 1 else q.mean(dim=(-2, -1), keepdim=True)
    return torch.where(mean > 0, mean, 1).sqrt()


def _parts(state: State, rho1: Tensor, rho2: Tensor) -> tuple[Tensor, Tensor]:
    """(a1 − a2)² and 2·a1·a2 of every pair."""
    a1 = state.left(state.q1.detach().clamp_min(0).sqrt() / rho1)
    a2 = state.right(state.q2.detach().clamp_min(0).sqrt() / rho2)
    return (a1 - a2).square(), 2 * a1 * a2


def distances(state: State, rho1: Tensor, rho2: Tensor) -> tuple[Tensor, Tensor | None]:
    """D of every pair in the scales ρ1 and ρ2, and the same from 1 + c where that is carried."""
    difference, product = _parts(state, rho1, rho2)
    d = difference + product * state.t.detach()
    return d, None if state.u is None else difference + product * state.u.detach()


def deficit_of_distance(state: State, d: Tensor, rho1: Tensor, rho2: Tensor) -> Tensor:
    """The deficit that belongs to a distance, for the variances of a state."""
    difference, product = _parts(state, rho1, rho2)
    t = ((d - difference) / torch.where(product > 0, product, 1)).clamp(0, 2)
    return torch.where(product > 0, t, 1)


def weighted_sum(
    parts: Sequence[State], spread: Callable[[Tensor], Tensor], frame: State, *, w: float | Tensor, b: float | Tensor
) -> State:
    """K' = w·L(ΣK) + b: the sum of states of the same pairs under a linear map L, ``spread``, over pixels.

    ``frame`` has the variances and the form of pairs behind the sum; returned is it with deficits, covariances, and the
    NTK w·L(ΣT). The weights of L are not negative.
    """
    rho1, rho2 = mean_scale(frame.q1), mean_scale(frame.q2)
    w_value, b_value = (value.detach() if isinstance(value, Tensor) else value for value in (w, b))
    known = [distances(part, rho1, rho2) for part in parts]
    inverse1, inverse2 = frame.left(1 / rho1), frame.right(1 / rho2)
    near = w_value * spread(_total(d for d, _ in known)) + b_value * (inverse1 - inverse2).square()
    t = deficit_of_distance(frame, near, rho1, rho2)
    u = None
    if known[-1][1] is not None:
        far = w_value * spread(_total(e for _, e in known)) + b_value * (inverse1 + inverse2).square()
        u = deficit_of_distance(frame, far, rho1, rho2)
    return replace(
        frame,
        t=t,
        u=u,
        k=None if parts[0].k is None else w * spread(_total(part.k for part in parts)) + b,
        ntk=None if parts[0].ntk is None else w * spread(_total(part.ntk for part in parts)),
    )


def _total(arrays: Iterable[Tensor | None]) -> Tensor:
    return reduce(torch.add, (array for array in arrays if array is not None))


def affine(state: State, w: float | Tensor, b: float | Tensor) -> State:
    """Scale every covariance by w and add b to it, the NTK excepted.

    With s = √(q1·q2) and s' = √((w·q1 + b)(w·q2 + b)) the new deficit is

        t' = 1 − (w·k + b)/s' = [w·s·t + (s' − w·s − b)] / s', s' − w·s − b = w·b·(√q1 − √q2)² / (s' + w·s + b),

    a sum of terms that are never negative. 1 + c' is treated alike.
    """
    q1, q2 = state.variances(lambda q: w * q + b)
    k = None if state.k is None else w * state.k + b
    if not isinstance(b, Tensor) and b == 0:
        # A positive factor changes no correlation.
        return replace(state, q1=q1, q2=q2, k=k)

    r1, r2 = (r.detach() for r in state.deviations())
    new_s = state.left(safe_sqrt(q1.detach())) * state.right(safe_sqrt(q2.detach()))
    w, b = (value.detach() if isinstance(value, Tensor) else value for value in (w, b))
    ws = (r1 * r2) * w
    t = state.t.detach() * ws + (r1 - r2).square() * (w * b) / (new_s + ws + b)
    t = safe_divide(t, new_s, otherwise=1.0)
    u = None
    if state.u is not None:
        rest = ((r1.square() + r2.square()) * w + b) * b / (new_s + ws)
        u = safe_divide(state.u.detach() * ws + b + rest, new_s, otherwise=1.0)
    return replace(state, q1=q1, q2=q2, t=t, u=u, k=k)


#: Distances below so many ulps of what they are the difference of count as zero.
SNAP = 16


def flattened(state: State) -> State:
    """The mean over the pixels of one state per pixel; vectors stay as they are."""
    if state.pixels is Pixels.NONE:
        return state
    state = state.same_pixels()

    def spread(array: Tensor) -> Tensor:
        return array.mean(dim=(-2, -1), keepdim=True)

    q1, q2 = state.variances(spread)
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

    def deficit(distance: Tensor) -> Tensor:
        between = window.mean_across(distance)
        rest = between - spread
        # What is left of two equal numbers is rounding, and would look like an angle of √ε.
        rest = torch.where(rest > SNAP * torch.finfo(rest.dtype).eps * between, rest, 0)
        return deficit_of_distance(frame, rest, rho1, rho2)

    k = None if padded.k is None else window.mean_across(padded.k)
    ntk = None if padded.ntk is None else window.mean_across(padded.ntk)
    new = replace(frame, t=deficit(d), u=None if e is None else deficit(e), k=k, ntk=ntk)
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
    within = diagonal_pixels(window.mean_across(distances(padded, rho, rho)[0]))
    return diagonal_pixels(window.mean_across(padded.covariance())), within
