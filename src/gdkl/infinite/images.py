"""The state that a network sees first when its inputs are images: K(p, p') = x(p)·x'(p') / C."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gdkl.infinite.state import Pixels, State
from gdkl.infinite.vectors import pair_deficits, variance_and_direction


def image_state(
    x1: Tensor, x2: Tensor | None, *, matched: bool, pairs: bool, two_sided: bool, ntk: bool, gradient: bool
) -> State:
    """Covariances of the pixels of images over their channels.

    Args:
        x1: First set, shape ``(n1, C, H, W)``.
        x2: Second set; None for the first set again.
        matched: Pair each image of the first set with the same image of the second alone.
        pairs: Whether each pixel meets every pixel of the other image, or only the same.
        two_sided: Carry 1 + c beside 1 − c.
        ntk: Start a neural tangent kernel.
        gradient: Carry the covariance for gradients.
    """
    # Channels last: pixels are vectors of channels.
    first = x1.permute(0, 2, 3, 1)
    second = first if x2 is None else x2.permute(0, 2, 3, 1)
    q1, a = variance_and_direction(first)
    q2, b = (q1, a) if x2 is None else variance_and_direction(second)
    pixels = Pixels.PAIRS if pairs else Pixels.DIAGONAL
    frame = State(q1, q2, q1, matched=matched, pixels=pixels)
    t, u = pair_deficits(a, b, frame, two_sided=two_sided)
    k = None
    if gradient:
        m, ij = "n" if matched else "m", "ij" if pairs else "hw"
        rows, columns = "n" if matched else "nm", "hwij" if pairs else "hw"
        k = torch.einsum(f"nhwc,{m}{ij}c->{rows}{columns}", first, second) / first.shape[-1]
    t = t.to(x1.dtype)
    state = replace(frame, t=t, u=None if u is None else u.to(x1.dtype), k=k, ntk=torch.zeros_like(t) if ntk else None)
    if not pairs or (matched and x2 is None):
        return state
    own1 = image_state(x1, None, matched=True, pairs=True, two_sided=two_sided, ntk=False, gradient=gradient)
    if x2 is None:
        return replace(state, own1=own1, own2=own1)
    own2 = image_state(x2, None, matched=True, pairs=True, two_sided=two_sided, ntk=False, gradient=gradient)
    return replace(state, own1=own1, own2=own2)
