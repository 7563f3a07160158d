"""Sums of branches."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from gdkl.infinite.finite import FiniteResidual
from gdkl.infinite.network import InfiniteNetwork, Sequential, Spec
from gdkl.infinite.spatial import branches_differ
from gdkl.infinite.state import State
from gdkl.infinite.sums import weighted_sum


class Residual(InfiniteNetwork):
    """Two branches from the same input, added: K ← K_main + K_shortcut.

    Args:
        main: The one branch.
        shortcut: The other; None for the identity.

    Example:
        >>> import torch
        >>> import gdkl.infinite as inf
        >>> inf.Residual(inf.ReLU()).kernel(torch.tensor([[2.0]]))
        tensor([[6.]])
    """

    def __init__(self, main: InfiniteNetwork, shortcut: InfiniteNetwork | None = None) -> None:
        self.main = main if isinstance(main, Sequential) else Sequential(main)
        other = Sequential() if shortcut is None else shortcut
        self.shortcut = other if isinstance(other, Sequential) else Sequential(other)

    @property
    def _two_sided(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.main._two_sided or self.shortcut._two_sided

    @property
    def _needs_pairs(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.main._needs_pairs or self.shortcut._needs_pairs

    def _step(self, state: State, pairs_ahead: bool) -> State:
        return _add(self.main._step(state, pairs_ahead), self.shortcut._step(state, pairs_ahead))

    def _propagate(self, state: State) -> State:
        return self._step(state, pairs_ahead=False)

    @property
    def _has_weights(self) -> bool:
        return self.main._has_weights or self.shortcut._has_weights

    def _finite(self, width: int, outputs: int) -> nn.Module:
        # Both branches end in the channels that come in or in ``width``: the last one decides nothing here.
        del outputs
        return FiniteResidual(self.main._finite(width, width), self.shortcut._finite(width, width))

    def _own_spec(self) -> Spec:
        return {"op": "residual", "main": self.main.to_spec(), "shortcut": self.shortcut.to_spec()}

    def __repr__(self) -> str:
        return f"Residual(main={self.main!r}, shortcut={self.shortcut!r})"


def _add(a: State, b: State) -> State:
    """The sum of two states of the same inputs, their own pixel pairs included."""
    if a.t.shape != b.t.shape:
        raise branches_differ(a.q1.shape[1:], b.q1.shape[1:])
    q1 = a.q1 + b.q1
    frame = replace(a, q1=q1, q2=q1 if a.q2 is a.q1 and b.q2 is b.q1 else a.q2 + b.q2)
    new = weighted_sum([a, b], _unchanged, frame, w=1.0, b=0.0)
    if a.own1 is None or b.own1 is None or a.own2 is None or b.own2 is None:
        return new
    own1 = _add(a.own1, b.own1)
    return replace(new, own1=own1, own2=own1 if a.own2 is a.own1 else _add(a.own2, b.own2))


def _unchanged(array: Tensor) -> Tensor:
    return array
