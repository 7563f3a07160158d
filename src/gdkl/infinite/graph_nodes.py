"""A torch network as a graph of its operations: their names, arguments and twins, and what is known of tensors."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import fx, nn
from torch.nn import functional

from gdkl.infinite.activation import Activation
from gdkl.infinite.image_layers import AvgPool2d, Conv2d, Flatten, GlobalAvgPool2d
from gdkl.infinite.layers import LayerNorm, Linear, is_odd
from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.torch_twins import CALLS, FIXED, REQUIRED, Options, defaults
from gdkl.numerics import GdklWarning, OptionError

#: What is known of a tensor's shape: nothing, vectors for all that is known, vectors, images, images of one pixel.
Shape: TypeAlias = Literal["unknown", "rows", "vectors", "images", "dots"]
#: Operators that change the tensor on their left, under which other names see the change too.
IN_PLACE = (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow, operator.imatmul)


class Tracer(fx.Tracer):
    """Traces into the user's modules, and stops at those of torch."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is a layer, and not put together from layers."""
        # A subclass that computes something else is no such layer any more.
        own = type(m).forward in (nn.Linear.forward, nn.Conv2d.forward)
        return own or super().is_leaf_module(m, module_qualified_name)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """What stands for the result of an operation."""
        return _Proxy(node, self)


class _Proxy(fx.Proxy):
    """A tensor while traced; unlike torch's own it tells ``a += b``, which other names see too, from ``a = a + b``."""


def _in_place(by: Callable[..., Any]) -> Callable[[_Proxy, Any], fx.Proxy]:
    return lambda self, other: self.tracer.create_proxy("call_function", by, (self, other), {})


for _by in IN_PLACE:
    setattr(_Proxy, f"__{_by.__name__}__", _in_place(_by))


def is_size(node: fx.Node) -> bool:
    """Whether a node is a size or a shape, or part of one."""
    if node.op == "call_method":
        return node.target in ("size", "dim")
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and is_size(node.args[0])
    return node.target is getattr and node.args[1] in ("shape", "ndim")


def _is_batch_size(value: Any) -> bool:
    """Whether a value is the number of rows, as ``x.size(0)`` or ``x.shape[0]`` gives it."""
    if not isinstance(value, fx.Node) or not is_size(value):
        return False
    if value.target == "size":
        return bool((*value.args[1:], *value.kwargs.values()) == (0,))
    return value.target is operator.getitem and bool(value.args[1] == 0)


def node_name(node: fx.Node) -> str:
    """The name of what a node calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def called(node: fx.Node) -> str:
    """What a node is and calls, for errors."""
    return f"the operation {node.name!r} ({node_name(node)})"


def arguments(node: fx.Node, usual: Options, fixed: tuple[str, ...] = ()) -> Options:
    """All arguments of a call behind its tensor, by name; those that are not known, or computed, are refused."""
    where = called(node)
    given = {name: value for name, value in node.kwargs.items() if name not in ("input", "self")}
    # With the tensor itself given by name, all that comes by position would be behind it.
    values = node.args if "input" in node.kwargs else node.args[1:]
    if len(values) > len(usual):
        raise OptionError(f"{where} has the argument {values[len(usual)]!r}, which has no infinite twin.")
    options = dict(zip(usual, values, strict=False)) | given
    for name, value in options.items():
        if name not in usual:
            raise OptionError(f"{where} has the argument {name}={value!r}, which has no infinite twin.")
        if name in fixed and value != usual[name]:
            raise OptionError(f"{where} has no infinite twin with {name}={value!r}: use {name}={usual[name]!r}.")
        if isinstance(value, fx.Node) and name != "other":
            raise OptionError(f"{where} computes its argument {name}, which has no infinite twin.")
    options = usual | options
    for name, value in options.items():
        if value is REQUIRED:
            raise OptionError(f"{where} lacks the argument {name}.")
    return options


def operation_twin(node: fx.Node) -> InfiniteNetwork:
    """The twin of a function or a method of tensors."""
    name, where = node_name(node), called(node)
    if name in ("view", "reshape"):
        sizes: Any = node.args[1:]
        if len(sizes) == 1 and isinstance(sizes[0], tuple | list):
            (sizes,) = sizes
        if len(sizes) != 2 or not _is_batch_size(sizes[0]) or sizes[1] != -1 or node.kwargs:
            raise OptionError(f"{where} has an infinite twin only as flatten(1) or {name}(x.size(0), -1).")
        return Flatten()
    twin = CALLS.get(name.removesuffix("_"))
    if twin is None or not _is_of_torch(node):
        raise OptionError(f"{where} has no infinite twin.")
    options = arguments(node, defaults(twin), FIXED.get(name.removesuffix("_"), ()))
    try:
        return twin(**options)
    except OptionError as error:
        raise OptionError(f"{where}: {error}") from error


def _is_of_torch(node: fx.Node) -> bool:
    """Whether a call is of torch's own function, and not of another one of the same name."""
    name = node_name(node)
    places = (torch, functional, torch.special)
    known = [getattr(place, name.removeprefix("special_"), None) for place in places]
    return node.op == "call_method" or any(node.target is function for function in known)


@dataclass(frozen=True)
class Signal:
    """What is known of a tensor in the graph.

    ``centred``: its units are as likely as their opposites; ``gaussian``: as activations take their inputs to be.
    """

    shape: Shape
    centred: bool
    gaussian: bool


def behind(layer: InfiniteNetwork, node: fx.Node, before: Signal) -> Signal:
    """What is known of a tensor behind a layer, refusing what the layer's twin does not cover."""
    shape = before.shape
    flat = shape in ("rows", "vectors")
    where = called(node)
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
    if isinstance(layer, Flatten):
        if shape == "rows":
            raise OptionError(
                f"{where} flattens what an nn.Linear gives, which acts on the last axis: flatten before it."
            )
        return replace(before, shape="vectors")
    if isinstance(layer, Conv2d | AvgPool2d):
        return Signal("images", True, True) if isinstance(layer, Conv2d) else replace(before, shape="images")
    if isinstance(layer, GlobalAvgPool2d):
        # A mean over all pixels leaves vectors, unless it keeps images of one pixel.
        mean = node.op != "call_module" and node_name(node) == "mean"
        gone = mean and not arguments(node, defaults(CALLS["mean"]))["keepdim"]
        return replace(before, shape="vectors" if gone else "dots")
    if not isinstance(layer, Activation):
        return before
    if not before.gaussian:
        warnings.warn(
            f"{where} acts on the inputs or on another activation, with no Linear or Conv2d between them: the kernel "
            "takes what comes in as Gaussian, which it is not.",
            GdklWarning,
            stacklevel=2,
        )
    return replace(before, centred=before.centred and is_odd(layer), gaussian=False)
