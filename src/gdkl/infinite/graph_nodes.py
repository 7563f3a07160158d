"""A torch network as a graph of its operations: their names, arguments and twins."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from gdkl.infinite.image_layers import Flatten
from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.torch_twins import CALLS, REQUIRED, Options
from gdkl.numerics import OptionError

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
    """Stands for a tensor while a network is traced, and tells ``a += b`` from ``a = a + b``.

    torch's own takes both for the latter, with which another name for the same tensor would not see the change.
    """

    def _changed(self, by: Callable[..., Any], other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", by, (self, other), {})


def _in_place(by: Callable[..., Any]) -> Callable[[_Proxy, Any], fx.Proxy]:
    return lambda self, other: self._changed(by, other)


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


def keeps_pixels(node: fx.Node) -> bool:
    """Whether a mean over all pixels leaves images of one pixel."""
    if node.op != "call_module" and node_name(node) == "mean":
        return bool(bound_arguments(node, CALLS["mean"].defaults)["keepdim"])
    return True


def bound_arguments(node: fx.Node, defaults: Options, fixed: tuple[str, ...] = ()) -> Options:
    """All arguments of a call behind its tensor, by name.

    Raises:
        OptionError: If the call has an argument that is not known here, one that is computed, or one away
            from the only value that has a twin.
    """
    where = f"the operation {node.name!r} ({node_name(node)})"
    given = {name: value for name, value in node.kwargs.items() if name not in ("input", "self")}
    # With the tensor itself given by name, all that comes by position would be behind it.
    values = node.args if "input" in node.kwargs else node.args[1:]
    if len(values) > len(defaults):
        raise OptionError(f"{where} has the argument {values[len(defaults)]!r}, which has no infinite twin.")
    options = dict(zip(defaults, values, strict=False)) | given
    for name, value in options.items():
        if name not in defaults:
            raise OptionError(f"{where} has the argument {name}={value!r}, which has no infinite twin.")
        if name in fixed and value != defaults[name]:
            raise OptionError(f"{where} has no infinite twin with {name}={value!r}: use {name}={defaults[name]!r}.")
        if isinstance(value, fx.Node) and name != "other":
            raise OptionError(f"{where} computes its argument {name}, which has no infinite twin.")
    options = defaults | options
    for name, value in options.items():
        if value is REQUIRED:
            raise OptionError(f"{where} lacks the argument {name}.")
    return options


def operation_twin(node: fx.Node) -> InfiniteNetwork:
    """The twin of a function or a method of tensors."""
    name = node_name(node)
    where = f"the operation {node.name!r} ({name})"
    if name in ("view", "reshape"):
        sizes: Any = node.args[1:]
        if len(sizes) == 1 and isinstance(sizes[0], tuple | list):
            (sizes,) = sizes
        if len(sizes) != 2 or not _is_batch_size(sizes[0]) or sizes[1] != -1 or node.kwargs:
            raise OptionError(f"{where} has an infinite twin only as flatten(1) or {name}(x.size(0), -1).")
        return Flatten()
    call = CALLS.get(name.removesuffix("_"))
    if call is None or not _is_of_torch(node):
        raise OptionError(f"{where} has no infinite twin.")
    options = bound_arguments(node, call.defaults, call.fixed)
    try:
        return call.twin(options)
    except OptionError as error:
        raise OptionError(f"{where}: {error}") from error


def _is_of_torch(node: fx.Node) -> bool:
    """Whether a call is of torch's own function, and not of another one of the same name."""
    name = node_name(node)
    places = (torch, functional, torch.special)
    known = [getattr(place, name.removeprefix("special_"), None) for place in places]
    return node.op == "call_method" or any(node.target is function for function in known)
