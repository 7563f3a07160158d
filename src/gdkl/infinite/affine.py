"""K ← w·K + b on every pair, without cancellation in the correlation deficit."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from gdkl.infinite.state import State, safe_divide, safe_sqrt


def affine(state: State, w: float | Tensor, b: float | Tensor) -> State:
    """Scale every covariance by w and add b to it, the NTK excepted.

    With s = √(q1·q2) and s' = √((w·q1 + b)(w·q2 + b)) the new deficit is

        t' = 1 − (w·k + b)/s' = [w·s·t + (s' − w·s − b)] / s',
        s' − w·s − b = w·b·(√q1 − √q2)² / (s' + w·s + b),

    a sum of terms that are never negative. 1 + c' is treated alike.

    Example:
        >>> import torch
        >>> one = torch.ones(1)
        >>> affine(State(one, one, torch.zeros(1, 1)), w=2.0, b=0.5).covariance()
        tensor([[2.5000]])
    """
    q1 = w * state.q1 + b
    q2 = q1 if state.q2 is state.q1 else w * state.q2 + b
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
