"""Sums of branches."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from gdkl.infinite.activation import Activation
from gdkl.infinite.elementwise import Elementwise
from gdkl.infinite.finite import FiniteResidual
from gdkl.infinite.network import InfiniteNetwork, Spec
from gdkl.infinite.sequential import Sequential
from gdkl.infinite.spatial import branches_differ
from gdkl.infinite.state import State
from gdkl.infinite.sums import weighted_sum
from gdkl.numerics import OptionError


class Residual(InfiniteNetwork):
    """Two branches from the same input, added: K ← K_main + K_shortcut.

    That is the covariance of the sum where the branches do not correlate: one of them must have weights of its own on
    every path, with no activation of nonzero mean behind them. What comes before the sum is not known here;
    `from_torch`, which knows it, checks the rest.

    Args:
        main: The one branch.
        shortcut: The other; None for the identity.

    Raises:
        OptionError: If neither branch has weights, or both end in an activation of nonzero mean, such as ReLU.

    Example:
        >>> import torch
        >>> import gdkl.infinite as inf
        >>> inf.Residual(inf.Sequential(inf.ReLU(), inf.Linear())).kernel(torch.tensor([[2.0]]))
        tensor([[6.]])
    """

    def __init__(self, main: InfiniteNetwork, shortcut: InfiniteNetwork | None = None) -> None:
        self.main = main if isinstance(main, Sequential) else Sequential(main)
        other = Sequential() if shortcut is None else shortcut
        self.shortcut = other if isinstance(other, Sequential) else Sequential(other)
        if not meets_weights(self.main) and not meets_weights(self.shortcut):
            raise OptionError(
                "neither branch of a Residual has weights of its own, so they correlate: put a Linear or Conv2d "
                "into one."
            )
        if _ends_off_centre(self.main) and _ends_off_centre(self.shortcut):
            raise OptionError(
                "both branches of a Residual end in an activation of nonzero mean, so they correlate: end "
                "one in a Linear or Conv2d."
            )

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


def meets_weights(net: InfiniteNetwork) -> bool:
    """Whether every path through a network meets weights, which make its units independent of what went in.

    Example:
        >>> import gdkl.infinite as inf
        >>> meets_weights(inf.Residual(inf.Linear())), meets_weights(inf.Residual(inf.Linear(), inf.Linear()))
        (False, True)
    """
    if isinstance(net, Residual):
        return meets_weights(net.main) and meets_weights(net.shortcut)
    if isinstance(net, Sequential):
        return any(meets_weights(layer) for layer in net.layers)
    return net._has_weights


def is_odd(activation: Activation) -> bool:
    """Whether φ(−x) = −φ(x), so that units of a symmetric distribution keep mean zero.

    Example:
        >>> import gdkl.infinite as inf
        >>> is_odd(inf.Erf()), is_odd(inf.ReLU())
        (True, False)
    """
    x = torch.linspace(0.05, 12.0, 240, dtype=torch.float64)
    with torch.no_grad():
        right, left = activation.function(x), activation.function(-x)
    return bool(((right + left).abs() <= 1e-12 * (right.abs() + left.abs())).all())


def _ends_off_centre(net: InfiniteNetwork) -> bool:
    """Whether what leaves a branch surely has a nonzero mean over its units."""
    if isinstance(net, Residual):
        return _ends_off_centre(net.main) or _ends_off_centre(net.shortcut)
    if isinstance(net, Sequential):
        for layer in reversed(net.layers):
            if layer._has_weights and not isinstance(layer, Residual | Sequential):
                return False
            if isinstance(layer, Activation) and not is_odd(layer):
                # The mean of a function given by the user may be zero though it is not odd.
                return not isinstance(layer, Elementwise)
            if isinstance(layer, Residual | Sequential) and (layer._has_weights or _ends_off_centre(layer)):
                return _ends_off_centre(layer)
        return False
    return isinstance(net, Activation) and not isinstance(net, Elementwise) and not is_odd(net)


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
