"""From a network and the shape of its inputs to a program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from gdkl.infinite.conv import Conv2d
from gdkl.infinite.erf import Erf
from gdkl.infinite.fused import activations as formulas
from gdkl.infinite.fused.layout import SINGLE, Layout
from gdkl.infinite.fused.placement import place
from gdkl.infinite.fused.program import (
    Activate,
    Add,
    Affine,
    Convolve,
    Op,
    Program,
    Save,
    Start,
    Sum,
    Swap,
    UnsupportedError,
    rolled,
)
from gdkl.infinite.gaussian import Gaussian
from gdkl.infinite.gelu import GELU
from gdkl.infinite.identity import Dropout, Identity
from gdkl.infinite.linear import Linear
from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.norm import LayerNorm
from gdkl.infinite.piecewise import ABReLU
from gdkl.infinite.pooling import Flatten
from gdkl.infinite.residual import Residual
from gdkl.infinite.sequential import Sequential
from gdkl.infinite.waves import _Wave
from gdkl.numerics import DataError

#: Numbers that fit the parameters of a kernel.
MOST_CONSTANTS = 256


def lower(net: InfiniteNetwork, shape: Sequence[int], dtype: torch.dtype) -> Program:
    """The program of a network's NNGP for inputs of a shape.

    Args:
        net: The network.
        shape: Features of a vector, or channels, height and width of an image.
        dtype: Precision of inputs and result.

    Raises:
        UnsupportedError: If the network has a layer, or the images a size, that the compiler does not take.

    Example:
        >>> import gdkl.infinite as inf
        >>> [type(op).__name__ for op in lower(inf.mlp(hidden_layers=2), (5,), torch.float32).ops]
        ['Affine', 'Repeat']
    """
    straight = all(isinstance(layer, ABReLU | _OTHER_LAYERS) for layer in _layers(net))
    if not straight and dtype == torch.float64:
        raise UnsupportedError("in float64 only straight-line activations are as exact as they must be")
    walk = _Walk(double=dtype == torch.float64 or not straight, tiny=torch.finfo(dtype).tiny)
    image = len(shape) == 3
    if image:
        walk.layout = _bare(shape[1], shape[2])
        walk.ops.append(Start(shape[0], walk.layout))
    walk.factor = 1 / shape[0]
    try:
        walk.follow(net)
    except DataError as error:
        raise UnsupportedError(str(error)) from error
    if not walk.layout.single:
        raise UnsupportedError("the network ends in an image")
    walk.settle()
    if len(walk.constants) > MOST_CONSTANTS:
        raise UnsupportedError("the network has too many different variances")
    ops = tuple(walk.ops)
    group, ops = place(ops, slots=walk.most_slots, double=walk.double) if image else (0, ops)
    return Program(rolled(ops), tuple(walk.constants), walk.double, group, walk.most_slots)


_OTHER_LAYERS = Linear | Conv2d | LayerNorm | Flatten | Identity | Dropout


def _layers(net: InfiniteNetwork) -> list[InfiniteNetwork]:
    """All layers that are no compositions."""
    if isinstance(net, Sequential):
        return [found for layer in net.layers for found in _layers(layer)]
    if isinstance(net, Residual):
        return [*_layers(net.main), *_layers(net.shortcut)]
    return [net]


def _bare(height: int, width: int) -> Layout:
    """A size whose lanes are not chosen yet."""
    return Layout(height, width, 0, 0, 0, 0)


class _Walk:
    """Collects operations. A factor that is still to be applied waits for a layer that multiplies anyway."""

    def __init__(self, *, double: bool, tiny: float) -> None:
        self.double, self.tiny = double, tiny
        self.ops: list[Op] = []
        self.constants: list[float] = []
        self.layout = SINGLE
        self.factor = 1.0
        self.slots = self.most_slots = 0

    def constant(self, value: float) -> int:
        """The number of a constant."""
        if value not in self.constants:
            self.constants.append(value)
        return self.constants.index(value)

    def term(self, value: float) -> int | None:
        """The number of a term, None for zero."""
        return None if value == 0 else self.constant(value)

    def settle(self) -> None:
        """Apply the factor that waits."""
        if self.factor != 1:
            self.ops.append(Affine(self.layout, self.constant(self.factor), None))
            self.factor = 1.0

    def activate(self, formula: formulas.Formula) -> None:
        """Apply an element-wise function."""
        self.settle()
        self.ops.append(Activate(self.layout, formula))

    def follow(self, net: InfiniteNetwork) -> None:
        """Add the operations of a network."""
        if isinstance(net, Sequential):
            for layer in net.layers:
                self.follow(layer)
        elif isinstance(net, Linear):
            self._linear(net)
        elif isinstance(net, Conv2d):
            self._convolution(net)
        elif isinstance(net, Residual):
            self._residual(net)
        elif isinstance(net, Flatten):
            self._flatten()
        elif isinstance(net, ABReLU):
            self._straight_lines(net)
        elif isinstance(net, LayerNorm):
            if net.eps < self.tiny:
                raise UnsupportedError("LayerNorm without eps")
            self.activate(formulas.Normalise(self.constant(net.eps)))
        elif not isinstance(net, Identity | Dropout):
            self._closed_form(net)

    def _linear(self, net: Linear) -> None:
        w, b = float(net.weight_var) * self.factor, float(net.bias_var)
        self.factor = 1.0
        if b == 0:
            # A factor alone can wait.
            self.factor = w
        else:
            self.ops.append(Affine(self.layout, self.constant(w) if w != 1 else None, self.constant(b)))

    def _convolution(self, net: Conv2d) -> None:
        if self.layout.single:
            raise UnsupportedError("Conv2d on vectors")
        window, (height, width) = net.window, self.layout.size
        pads = window.pads(height, width)
        sizes = [
            (length + low + high - size) // stride + 1
            for length, (low, high), size, stride in zip((height, width), pads, window.size, window.stride, strict=True)
        ]
        target = _bare(*sizes)
        w = float(net.weight_var) * self.factor / math.prod(window.size)
        self.factor = 1.0
        circular = window.mode == "circular" and pads != ((0, 0), (0, 0))
        lows = pads[0][0], pads[1][0]
        self.ops.append(
            Convolve(
                self.layout, target, window.size, window.stride, lows, circular, True,
                self.constant(w), self.term(float(net.bias_var)),
            )
        )  # fmt: skip
        self.layout = target

    def _residual(self, net: Residual) -> None:
        self.settle()
        slot, before = self.slots, self.layout
        self.slots += 1
        self.most_slots = max(self.most_slots, self.slots)
        self.ops.append(Save(slot))
        self.follow(net.main)
        self.settle()
        behind, length = self.layout, len(self.ops)
        self.layout = before
        self.ops.append(Swap(slot, before))
        self.follow(net.shortcut)
        self.settle()
        if len(self.ops) == length + 1:
            # The shortcut is the identity: what was saved is added as it is.
            self.ops.pop()
        if self.layout != behind:
            raise UnsupportedError("branches of different sizes")
        self.ops.append(Add(slot, behind))
        self.slots -= 1

    def _flatten(self) -> None:
        if self.layout.single:
            return
        self.ops.append(Sum(self.layout))
        self.factor /= math.prod(self.layout.size)
        self.layout = SINGLE

    def _straight_lines(self, net: ABReLU) -> None:
        odd, even = net._parts
        if even == 0:
            self.factor *= odd
            return
        kind = formulas.Arc if self.double else formulas.Bend
        self.activate(kind(None if odd == even else self.constant(odd / even)))
        self.factor = 2 * even if odd == even else even

    def _closed_form(self, net: InfiniteNetwork) -> None:
        formula: Any
        if isinstance(net, Erf):
            beta, height = self.constant(2 * net.b**2), self.constant(net.a**2 * 2 / math.pi)
            formula = formulas.ErrorFunction(beta, height, self.constant(net.c**2))
        elif isinstance(net, _Wave):
            parts = (net._height2 / 2 * part for part in (net._odd_part, net._even_part))
            formula = formulas.Wave(self.constant(net._b2), *(self.constant(part) for part in parts))
        elif isinstance(net, Gaussian):
            formula = formulas.Bump(self.constant(-2 * net.b), self.constant(net.a**2))
        elif isinstance(net, GELU):
            formula = formulas.ErrorLinear()
        else:
            raise UnsupportedError(f"no kernel is generated for {type(net).__name__}")
        self.activate(formula)
