"""Networks of straight-line activations as a short list of steps, for the engine in `fast`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gdkl.infinite.conv import Conv2d
from gdkl.infinite.identity import Dropout, Identity
from gdkl.infinite.linear import Linear
from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.norm import LayerNorm
from gdkl.infinite.piecewise import ABReLU
from gdkl.infinite.pooling import Flatten
from gdkl.infinite.residual import Residual
from gdkl.infinite.sequential import Sequential
from gdkl.infinite.spatial import Window


@dataclass(frozen=True)
class Affine:
    """K ← w·K + b."""

    w: float
    b: float


@dataclass(frozen=True)
class Convolve:
    """K ← w · mean over a window + b."""

    window: Window
    w: float
    b: float


@dataclass(frozen=True)
class Fold:
    """w·(odd·K + even·E|uv|) + b: two straight lines, and the dense layer behind them if there is one."""

    odd: float
    even: float
    w: float = 1.0
    b: float = 0.0


@dataclass(frozen=True)
class Normalise:
    """K ← K / √((q1 + eps)(q2 + eps))."""

    eps: float


@dataclass(frozen=True)
class Mean:
    """The mean over all pixels."""


@dataclass(frozen=True)
class Add:
    """The sum of two branches."""

    main: tuple[Step, ...]
    shortcut: tuple[Step, ...]


Step: TypeAlias = Affine | Convolve | Fold | Normalise | Mean | Add


def program(net: InfiniteNetwork) -> tuple[Step, ...] | None:
    """The network as steps of the short way; None where it has a layer that needs the long one.

    Example:
        >>> import gdkl.infinite as inf
        >>> len(program(inf.mlp(hidden_layers=1)) or ())
        2
        >>> program(inf.mlp(hidden_layers=1, activation="erf")) is None
        True
    """
    try:
        return tuple(_joined(list(_steps(net))))
    except _NotShortError:
        return None


class _NotShortError(Exception):
    """A layer that the short way does not know."""


def _steps(net: InfiniteNetwork) -> Iterator[Step]:
    if isinstance(net, Sequential):
        for layer in net.layers:
            yield from _steps(layer)
    elif isinstance(net, Linear):
        yield Affine(net.weight_var, net.bias_var)
    elif isinstance(net, Conv2d):
        yield Convolve(net.window, net.weight_var, net.bias_var)
    elif isinstance(net, ABReLU):
        odd, even = net._parts
        if even > 0:
            yield Fold(odd, even)
        else:
            yield Affine(odd, 0.0)
    elif isinstance(net, LayerNorm):
        yield Normalise(net.eps)
    elif isinstance(net, Flatten):
        yield Mean()
    elif isinstance(net, Residual):
        yield Add(tuple(_joined(list(_steps(net.main)))), tuple(_joined(list(_steps(net.shortcut)))))
    elif not isinstance(net, Identity | Dropout):
        raise _NotShortError


def _joined(steps: list[Step]) -> list[Step]:
    """Let an activation do the work of the dense layer behind it, or hand its factor on to a convolution."""
    joined: list[Step] = []
    for step in steps:
        last = joined[-1] if joined else None
        if isinstance(last, Fold) and (last.w, last.b) == (1.0, 0.0) and isinstance(step, Affine | Convolve):
            factor = last.odd if last.odd > 0 else last.even
            odd, even, w = last.odd / factor, last.even / factor, step.w * factor
            if isinstance(step, Affine):
                joined[-1] = Fold(odd, even, w, step.b)
            else:
                joined[-1] = Fold(odd, even)
                joined.append(Convolve(step.window, w, step.b))
        else:
            joined.append(step)
    return joined


def flat(steps: Sequence[Step]) -> Iterator[Step]:
    """All steps, those of branches included.

    Example:
        >>> import gdkl.infinite as inf
        >>> len(list(flat(program(inf.Residual(inf.Sequential(inf.ReLU(), inf.Linear()))) or ())))
        1
    """
    for step in steps:
        if isinstance(step, Add):
            yield from flat(step.main)
            yield from flat(step.shortcut)
        else:
            yield step
