"""What is known of the tensors of a traced torch network, by which layers without a twin there are refused."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from torch import fx

from gdkl.infinite.activation import Activation
from gdkl.infinite.graph_nodes import keeps_pixels, node_name
from gdkl.infinite.image_layers import AvgPool2d, Conv2d, Flatten, GlobalAvgPool2d
from gdkl.infinite.layers import Identity, LayerNorm, Linear
from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.residual import is_odd
from gdkl.numerics import GdklWarning, OptionError

#: What is known of a tensor's shape: nothing, vectors for all that is known, vectors, images, images of one
#: pixel.
Shape: TypeAlias = Literal["unknown", "rows", "vectors", "images", "dots"]


@dataclass(frozen=True)
class Signal:
    """What is known of a tensor in the graph.

    Attributes:
        shape: Its shape.
        centred: Whether its units have mean zero, being as likely as their opposites.
        gaussian: Whether its units are Gaussian, as activations take their inputs to be.
    """

    shape: Shape
    centred: bool
    gaussian: bool


def behind(layer: InfiniteNetwork, node: fx.Node, before: Signal) -> Signal:
    """What is known of a tensor behind a layer, refusing what the layer's twin does not cover."""
    shape = before.shape
    flat = shape in ("rows", "vectors")
    where = f"the operation {node.name!r} ({node_name(node)})"
    if isinstance(layer, Linear):
        if shape in ("images", "dots"):
            raise OptionError(f"{where} acts on the last axis of images: flatten them first.")
        return Signal("vectors" if shape == "vectors" else "rows", centred=True, gaussian=True)
    if isinstance(layer, LayerNorm):
        if not flat and shape != "unknown":
            raise OptionError(f"{where} normalises the last axis of images, not their channels: flatten them first.")
        if not before.centred:
            raise OptionError(
                f"{where} subtracts a mean that has no infinite twin here: put the layer norm directly "
                "behind a Linear, or build it from gdkl.infinite's LayerNorm, which subtracts none."
            )
        return before
    if isinstance(layer, Conv2d | AvgPool2d | GlobalAvgPool2d) and flat:
        raise OptionError(f"{where} acts on images, but what comes before it gives vectors.")
    if isinstance(layer, Conv2d):
        return Signal("images", centred=True, gaussian=True)
    if isinstance(layer, Flatten):
        if shape == "rows":
            raise OptionError(
                f"{where} flattens what an nn.Linear gives, which acts on the last axis: flatten before it."
            )
        return replace(before, shape="vectors")
    if isinstance(layer, AvgPool2d):
        return replace(before, shape="images")
    if isinstance(layer, GlobalAvgPool2d):
        return replace(before, shape="dots" if keeps_pixels(node) else "vectors")
    if isinstance(layer, Activation) and not isinstance(layer, Identity):
        return _activated(layer, before, where)
    return before


def _activated(layer: Activation, before: Signal, where: str) -> Signal:
    """What is known of a tensor behind an activation."""
    if not before.gaussian:
        warnings.warn(
            f"{where} acts on the inputs or on another activation, with no Linear or Conv2d between them: the kernel "
            "takes what comes in as Gaussian, which it is not.",
            GdklWarning,
            stacklevel=2,
        )
    return replace(before, centred=before.centred and is_odd(layer), gaussian=False)
