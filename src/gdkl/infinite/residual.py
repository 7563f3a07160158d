"""Sums of branches."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from gdkl.infinite.activation import Activation
from gdkl.infinite.elementwise import Elementwise
from gdkl.infinite.finite import FiniteResidual
from gdkl.infinite.layers import Sequential
from gdkl.infinite.network import InfiniteNetwork, Spec
from gdkl.infinite.program import Activate, Add, Affine, Convolve, Op, Save, Swap
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

    def _ops(self) -> Iterator[Op]:
        yield Save()
        yield from self.main._ops()
        yield Swap()
        yield from self.shortcut._ops()
        yield Add()

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
    """Whether every path through a network meets weights, which make its units independent of what went in."""
    met, stack = False, list[bool]()
    for op in net._ops():
        if isinstance(op, Affine | Convolve):
            met = True
        elif isinstance(op, Save):
            stack.append(met)
        elif isinstance(op, Swap):
            met, stack[-1] = stack[-1], met
        elif isinstance(op, Add):
            met = stack.pop() and met
    return met


def is_odd(activation: Activation) -> bool:
    """Whether φ(−x) = −φ(x), so that units of a symmetric distribution keep mean zero."""
    x = torch.linspace(0.05, 12.0, 240, dtype=torch.float64)
    with torch.no_grad():
        right, left = activation.function(x), activation.function(-x)
    return bool(((right + left).abs() <= 1e-12 * (right.abs() + left.abs())).all())


def _ends_off_centre(net: InfiniteNetwork) -> bool:
    """Whether the output surely has a nonzero mean over its units, for inputs of zero mean."""
    off, stack = False, list[bool]()
    for op in net._ops():
        if isinstance(op, Affine | Convolve):
            off = False
        elif isinstance(op, Activate) and isinstance(op.function, Activation) and not is_odd(op.function):
            # The mean of a function given by the user may be zero though it is not odd.
            off = not isinstance(op.function, Elementwise)
        elif isinstance(op, Save):
            stack.append(False)
            off = False
        elif isinstance(op, Swap):
            off, stack[-1] = stack[-1], off
        elif isinstance(op, Add):
            off = stack.pop() or off
    return off
