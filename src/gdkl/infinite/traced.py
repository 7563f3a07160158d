"""The infinite twin of a finite torch network."""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import fx, nn
from torch.nn import functional
from torch.nn.utils.parametrize import is_parametrized

from gdkl.infinite.activation import Activation
from gdkl.infinite.conv import Conv2d
from gdkl.infinite.elementwise import Elementwise
from gdkl.infinite.identity import Dropout, Identity
from gdkl.infinite.linear import Linear
from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.norm import LayerNorm
from gdkl.infinite.parameters import finite_number
from gdkl.infinite.piecewise import LeakyReLU, ReLU
from gdkl.infinite.pooling import AvgPool2d, Flatten, GlobalAvgPool2d
from gdkl.infinite.residual import Residual, is_odd, meets_weights
from gdkl.infinite.sequential import Sequential
from gdkl.infinite.torch_calls import (
    CALLS,
    REQUIRED,
    Options,
    adaptive_pool,
    average_pool,
    flatten,
    gelu,
    layer_norm,
)
from gdkl.numerics import GdklWarning, OptionError

#: A variance for every layer, or a function of a layer that gives one, or gives the pair of both.
Variance: TypeAlias = float | Callable[[nn.Module], Any]

_ADDITIONS = (operator.add, operator.iadd, torch.add)
#: Operators that change the tensor on their left, under which other names see the change too.
_IN_PLACE = (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow, operator.imatmul)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout)
_SMOOTH = (
    nn.Tanh,
    nn.Sigmoid,
    nn.SiLU,
    nn.Softplus,
    nn.Mish,
    nn.ELU,
    nn.CELU,
    nn.SELU,
    nn.Hardtanh,
    nn.Softsign,
)


def from_torch(module: nn.Module, *, weight_var: Variance, bias_var: Variance) -> Sequential:
    """The infinite-width limit of a torch network, with fresh Gaussian weights; trained weights are ignored.

    The network is traced by ``torch.fx``. Additions of branches become `Residual`, dropout and batch norm the
    identity (with a warning for the latter, since the kernel differs), an activation without a closed form
    `Elementwise`. Activations take what comes in as Gaussian, which it is behind weights: a warning tells of one on the
    inputs, on another activation, or on a sum with one. (Layers put together by hand, or by `from_spec`, are taken as
    they are meant.)

    Args:
        module: An ``nn.Sequential`` or any module that can be traced.
        weight_var: Variance of the weights before division by fan-in: a number, or a function of the layer
            that gives a number or the pair (weight variance, bias variance).
        bias_var: Variance of the biases, likewise; layers without bias have none. A function that gives pairs is
            passed as both; pairs that the other option contradicts are refused.

    Raises:
        OptionError: If a layer, an operation or an argument of one has no infinite twin, or if branches that
            are added correlate; the message names it.

    Example:
        >>> net = nn.Sequential(nn.Linear(13, 100), nn.ReLU(), nn.Linear(100, 1, bias=False))
        >>> from_torch(net, weight_var=1.6, bias_var=0.2)
        Sequential(Linear(weight_var=1.6, bias_var=0.2), ReLU(), Linear(weight_var=1.6, bias_var=0.0))
    """
    if not isinstance(module, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"from_torch takes an nn.Module; got {module!r}.")
    tracer = _Tracer()
    if tracer.is_leaf_module(module, ""):
        # A single layer would be traced into its own arithmetic.
        module = nn.Sequential(module)
    try:
        graph = tracer.trace(module)
    except (ValueError, TypeError, NotImplementedError, RuntimeError, AttributeError) as error:
        raise OptionError(
            f"{type(module).__name__} cannot be traced ({error}): build it from gdkl.infinite's layers."
        ) from error
    reader = _Reader(module, weight_var, bias_var)
    layers = reader.read(graph)
    if reader.norms:
        more = len(reader.norms) - 1
        warnings.warn(
            f"batch norm {reader.norms[0]!r}{f' (and {more} more)' if more else ''} counts as the identity, which "
            "changes the kernel: LayerNorm would keep its meaning.",
            GdklWarning,
            stacklevel=2,
        )
    return Sequential(*layers)


class _Tracer(fx.Tracer):
    """Traces into the user's modules, and stops at those of torch."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        # A subclass that computes something else is no such layer any more.
        own = type(m).forward in (nn.Linear.forward, nn.Conv2d.forward)
        return own or super().is_leaf_module(m, module_qualified_name)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)


class _Proxy(fx.Proxy):
    """Stands for a tensor while a network is traced, and tells ``a += b`` from ``a = a + b``.

    torch's own takes both for the latter, with which another name for the same tensor would not see the change.
    """

    def _changed(self, by: Callable[..., Any], other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", by, (self, other), {})

    def __iadd__(self, other: Any) -> fx.Proxy:
        return self._changed(operator.iadd, other)

    def __isub__(self, other: Any) -> fx.Proxy:
        return self._changed(operator.isub, other)

    def __imul__(self, other: Any) -> fx.Proxy:
        return self._changed(operator.imul, other)

    def __itruediv__(self, other: Any) -> fx.Proxy:
        return self._changed(operator.itruediv, other)

    def __ipow__(self, other: Any) -> fx.Proxy:
        return self._changed(operator.ipow, other)

    def __imatmul__(self, other: Any) -> fx.Proxy:
        return self._changed(operator.imatmul, other)


#: What is known of a tensor's shape: nothing, vectors for all that is known, vectors, images, images of one
#: pixel.
_Shape: TypeAlias = Literal["unknown", "rows", "vectors", "images", "dots"]


@dataclass(frozen=True)
class _Signal:
    """What is known of a tensor in the graph.

    Attributes:
        shape: Its shape.
        centred: Whether its units have mean zero, being as likely as their opposites.
        gaussian: Whether its units are Gaussian, as activations take their inputs to be.
    """

    shape: _Shape
    centred: bool
    gaussian: bool


class _Reader:
    """Turns a traced graph into layers."""

    def __init__(self, module: nn.Module, weight_var: Variance, bias_var: Variance) -> None:
        self.modules = dict(module.named_modules())
        self.weight_var, self.bias_var = weight_var, bias_var
        self.used: dict[int, str] = {}
        self.norms: list[str] = []
        self.order: dict[fx.Node, int] = {}
        self.gates: dict[fx.Node, set[fx.Node]] = {}
        self.signals: dict[fx.Node, _Signal] = {}
        self.layers: dict[fx.Node, InfiniteNetwork] = {}

    def read(self, graph: fx.Graph) -> list[InfiniteNetwork]:
        nodes = list(graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder" and node.users]
        (output,) = (node for node in nodes if node.op == "output")
        if len(inputs) != 1 or not isinstance(output.args[0], fx.Node):
            raise OptionError("the network must take one tensor and return one.")
        self.order = {node: i for i, node in enumerate(nodes)}
        for node in nodes:
            self._refuse_overwriting(node)
        for node in self._needed(output.args[0]):
            # The nodes that every path from the input to this one goes through.
            before = [self.gates[other] for other in self._tensors(node)]
            self.gates[node] = {node} | (set[fx.Node].intersection(*before) if before else set())
            if node.op == "placeholder":
                self.signals[node] = _Signal("unknown", centred=False, gaussian=False)
            elif not self._is_addition(node):
                self.layers[node] = self._layer(node)
                self.signals[node] = self._behind(node, self.signals[self._tensors(node)[0]])
            else:
                self.signals[node] = self._sum(node)
        return self._between(inputs[0], output.args[0])

    def _needed(self, end: fx.Node) -> list[fx.Node]:
        """The nodes that one is computed from, in order, sizes aside."""
        found, ahead = {end}, [end]
        while ahead:
            new = set(self._tensors(ahead.pop())) - found
            found |= new
            ahead += new
        return sorted(found, key=self.order.__getitem__)

    def _tensors(self, node: fx.Node) -> list[fx.Node]:
        """What a node computes with, sizes aside."""
        if node.op == "placeholder":
            return []
        tensors = [other for other in node.all_input_nodes if not _is_size(other)]
        for other in tensors:
            if other.op == "get_attr":
                raise OptionError(
                    f"the operation {node.name!r} uses the parameter or constant {other.target!r}, which has "
                    "no infinite twin: only Linear and Conv2d may have weights."
                )
        return tensors

    def _between(self, start: fx.Node, end: fx.Node) -> list[InfiniteNetwork]:
        """The layers that lead from one node to another."""
        layers: list[InfiniteNetwork] = []
        while end is not start:
            if end in self.layers:
                layers.append(self.layers[end])
                (end,) = self._tensors(end)
                continue
            a, b = self._addends(end)
            if b is None:
                end = a
                continue
            fork = max(self.gates[a] & self.gates[b], key=self.order.__getitem__)
            main, shortcut = Sequential(*self._between(fork, a)), Sequential(*self._between(fork, b))
            # Given all before the fork, units of a branch with weights of its own are independent of those of
            # the other: what is left of the covariance is the product of their means.
            independent = meets_weights(main) or meets_weights(shortcut)
            if not (independent and (self.signals[a].centred or self.signals[b].centred)):
                raise OptionError(
                    f"the addition {end.name!r} joins branches that correlate: each branch but one must end "
                    "in a layer with weights (Linear or Conv2d)."
                )
            layers.append(Residual(main, shortcut))
            end = fork
        return layers[::-1]

    @staticmethod
    def _is_addition(node: fx.Node) -> bool:
        if node.op == "call_function":
            return node.target in _ADDITIONS
        return node.op == "call_method" and node.target in ("add", "add_")

    def _addends(self, node: fx.Node) -> tuple[fx.Node, fx.Node | None]:
        """The two tensors of an addition, or one where the other is the number zero."""
        options = _bound(node, {"other": REQUIRED, "alpha": 1, "out": None}, fixed=("alpha", "out"))
        first = node.args[0] if node.args else node.kwargs["input"]
        tensors = [part for part in (first, options["other"]) if isinstance(part, fx.Node) and not _is_size(part)]
        if len(tensors) == 2:
            return tensors[0], tensors[1]
        (constant,) = (part for part in (first, options["other"]) if part is not tensors[0])
        if isinstance(constant, int | float) and constant == 0:
            # Python's sum() starts from it.
            return tensors[0], None
        raise OptionError(
            f"the addition {node.name!r} adds the constant {constant}, which has no infinite twin: use a bias."
        )

    def _sum(self, node: fx.Node) -> _Signal:
        """What is known of a sum."""
        parts = [self.signals[part] for part in self._addends(node) if part is not None]
        shapes: set[_Shape] = {part.shape for part in parts}
        # The one that says more stands for both.
        if len(shapes) > 1:
            shapes.discard("unknown")
        if "rows" in shapes:
            shapes.discard("vectors")
        if len(shapes) > 1:
            raise OptionError(f"the addition {node.name!r} joins tensors of different shapes.")
        return _Signal(shapes.pop(), all(part.centred for part in parts), all(part.gaussian for part in parts))

    def _refuse_overwriting(self, node: fx.Node) -> None:
        """Refuse what changes a tensor that others read, since a graph does not say who reads it when."""
        if node.target is operator.setitem:
            raise OptionError(f"the operation {node.name!r} assigns to parts of a tensor, which has no twin.")
        readers = [user for other in node.all_input_nodes[:1] for user in other.users if not _is_size(user)]
        if node.target in _IN_PLACE:
            # What a layer has computed before stays as it is; this is how a residual sum is often written.
            readers = [user for user in readers if not (self.order[user] < self.order[node] and self._is_fresh(user))]
        if len(readers) < 2:
            return
        name = _name(node)
        if node.op == "call_module":
            inplace = bool(getattr(self.modules[str(node.target)], "inplace", False))
        elif name.removesuffix("_") in CALLS:
            call = CALLS[name.removesuffix("_")]
            inplace = bool(_bound(node, call.defaults).get("inplace", False)) or name.endswith("_")
        else:
            inplace = node.target in _IN_PLACE or (name.endswith("_") and not name.startswith("__"))
        if inplace:
            raise OptionError(
                f"the operation {node.name!r} works in place on a tensor that is used elsewhere too: use "
                "inplace=False, and a = a + b in place of a += b."
            )

    def _is_fresh(self, node: fx.Node) -> bool:
        """Whether a node's result is surely not the memory that it was computed from."""
        fresh = (nn.Linear, nn.Conv2d, nn.LayerNorm, *_NORMS)
        return node.op == "call_module" and isinstance(self.modules[str(node.target)], fresh)

    def _layer(self, node: fx.Node) -> InfiniteNetwork:
        if len(self._tensors(node)) != 1:
            raise OptionError(f"the operation {node.name!r} ({_name(node)}) has no infinite twin.")
        if node.op == "call_module":
            name = str(node.target)
            return self._module(name, self.modules[name])
        if node.op in ("call_function", "call_method"):
            return _operation(node)
        raise OptionError(f"{node.op} {node.name!r} has no infinite twin.")

    def _module(self, name: str, layer: nn.Module) -> InfiniteNetwork:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            self._refuse_sharing(name, layer)
            if is_parametrized(layer):
                raise OptionError(f"the layer {name!r} has parametrized weights, which have no infinite twin.")
            w, b = self._variances(name, layer)
            if isinstance(layer, nn.Linear):
                return Linear(w, b)
            return _convolution(name, layer, w, b)
        if isinstance(layer, _NORMS):
            self.norms.append(name)
            return Identity()
        try:
            twin = _module_without_weights(layer)
        except OptionError as error:
            raise OptionError(f"the layer {name!r} ({type(layer).__name__}): {error}") from error
        if twin is None:
            raise OptionError(f"the layer {name!r} ({type(layer).__name__}) has no infinite twin.")
        return twin

    def _variances(self, name: str, layer: nn.Linear | nn.Conv2d) -> tuple[float, float]:
        """The variances of a layer's weights and biases."""
        for_weights, for_biases = (
            given(layer) if callable(given) else given for given in (self.weight_var, self.bias_var)
        )
        w = _pick(for_weights, 0, "weight_var")
        if layer.bias is None:
            return w, 0.0
        b = _pick(for_biases, 1, "bias_var")
        for option, given in (("weight_var", for_weights), ("bias_var", for_biases)):
            if isinstance(given, tuple | list) and tuple(given) != (w, b):
                raise OptionError(
                    f"{option} gives the pair {tuple(given)!r} for the layer {name!r}, and the other option gives "
                    f"another variance: weight_var and bias_var together say ({w:g}, {b:g}). Pass one function as both."
                )
        return w, b

    def _refuse_sharing(self, name: str, layer: nn.Module) -> None:
        own = {id(parameter) for parameter in layer.parameters()}
        for known in own & set(self.used):
            other = self.used[known]
            if other == name:
                raise OptionError(f"the layer {name!r} is used twice, and shared weights correlate.")
            raise OptionError(f"the layers {other!r} and {name!r} share weights, which correlate.")
        self.used |= dict.fromkeys(own, name)

    def _behind(self, node: fx.Node, before: _Signal) -> _Signal:
        """What is known of a tensor behind a layer, refusing what the layer's twin does not cover."""
        layer, shape = self.layers[node], before.shape
        flat = shape in ("rows", "vectors")
        where = f"the operation {node.name!r} ({_name(node)})"
        if isinstance(layer, Linear):
            if shape in ("images", "dots"):
                raise OptionError(f"{where} acts on the last axis of images: flatten them first.")
            return _Signal("vectors" if shape == "vectors" else "rows", centred=True, gaussian=True)
        if isinstance(layer, LayerNorm):
            if not flat and shape != "unknown":
                raise OptionError(
                    f"{where} normalises the last axis of images, not their channels: flatten them first."
                )
            if not before.centred:
                raise OptionError(
                    f"{where} subtracts a mean that has no infinite twin here: put the layer norm directly "
                    "behind a Linear, or build it from gdkl.infinite's LayerNorm, which subtracts none."
                )
            return before
        if isinstance(layer, Conv2d | AvgPool2d | GlobalAvgPool2d) and flat:
            raise OptionError(f"{where} acts on images, but what comes before it gives vectors.")
        if isinstance(layer, Conv2d):
            return _Signal("images", centred=True, gaussian=True)
        if isinstance(layer, Flatten):
            if shape == "rows":
                raise OptionError(
                    f"{where} flattens what an nn.Linear gives, which acts on the last axis: flatten before it."
                )
            return replace(before, shape="vectors")
        if isinstance(layer, AvgPool2d):
            return replace(before, shape="images")
        if isinstance(layer, GlobalAvgPool2d):
            return replace(before, shape="dots" if _keeps_pixels(node) else "vectors")
        if isinstance(layer, Activation) and not isinstance(layer, Identity):
            return _activated(layer, before, where)
        return before


def _activated(layer: Activation, before: _Signal, where: str) -> _Signal:
    """What is known of a tensor behind an activation."""
    if not before.gaussian:
        warnings.warn(
            f"{where} acts on the inputs or on another activation, with no Linear or Conv2d between them: the kernel "
            "takes what comes in as Gaussian, which it is not.",
            GdklWarning,
            stacklevel=2,
        )
    return replace(before, centred=before.centred and is_odd(layer), gaussian=False)


def _is_size(node: fx.Node) -> bool:
    """Whether a node is a size or a shape, or part of one."""
    if node.op == "call_method":
        return node.target in ("size", "dim")
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and _is_size(node.args[0])
    return node.target is getattr and node.args[1] in ("shape", "ndim")


def _is_batch_size(value: Any) -> bool:
    """Whether a value is the number of rows, as ``x.size(0)`` or ``x.shape[0]`` gives it."""
    if not isinstance(value, fx.Node) or not _is_size(value):
        return False
    if value.target == "size":
        return bool((*value.args[1:], *value.kwargs.values()) == (0,))
    return value.target is operator.getitem and bool(value.args[1] == 0)


def _name(node: fx.Node) -> str:
    """The name of what a node calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def _keeps_pixels(node: fx.Node) -> bool:
    """Whether a mean over all pixels leaves images of one pixel."""
    if node.op != "call_module" and _name(node) == "mean":
        return bool(_bound(node, CALLS["mean"].defaults)["keepdim"])
    return True


def _bound(node: fx.Node, defaults: Options, fixed: tuple[str, ...] = ()) -> Options:
    """All arguments of a call behind its tensor, by name.

    Raises:
        OptionError: If the call has an argument that is not known here, one that is computed, or one away
            from the only value that has a twin.
    """
    where = f"the operation {node.name!r} ({_name(node)})"
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


def _pick(given: Any, index: int, option: str) -> float:
    """A variance out of what was given for a layer, a number or the pair of both."""
    if isinstance(given, tuple | list):
        pair: Any = given
        if len(pair) != 2:
            raise OptionError(
                f"{option} must give a number or the pair (weight variance, bias variance); got {pair!r}."
            )
        given = pair[index]
    return finite_number(given, option, least=0.0)


def _convolution(name: str, layer: nn.Conv2d, w: float, b: float) -> InfiniteNetwork:
    if layer.groups != 1 or any(step != 1 for step in layer.dilation):
        raise OptionError(f"the layer {name!r} (Conv2d with groups or dilation) has no infinite twin.")
    if layer.padding_mode not in ("zeros", "circular"):
        raise OptionError(f"the layer {name!r} (Conv2d with padding_mode={layer.padding_mode!r}) has no infinite twin.")
    size, stride, padding, mode = (
        value if isinstance(value, str) else tuple(value)
        for value in (layer.kernel_size, layer.stride, layer.padding, layer.padding_mode)
    )
    arguments: tuple[Any, ...] = (size, stride, padding, mode)
    return Conv2d(*arguments, weight_var=w, bias_var=b)


def _module_without_weights(layer: nn.Module) -> InfiniteNetwork | None:
    """The twin of a module without weights; None where there is none."""
    if isinstance(layer, nn.ReLU):
        return ReLU()
    if isinstance(layer, nn.LeakyReLU):
        return LeakyReLU(layer.negative_slope)
    if isinstance(layer, nn.GELU):
        return gelu(layer.approximate)
    if isinstance(layer, nn.Identity):
        return Identity()
    if isinstance(layer, _DROPOUTS):
        return Dropout(layer.p)
    if isinstance(layer, nn.Flatten):
        return flatten(layer.start_dim, layer.end_dim)
    if isinstance(layer, nn.LayerNorm):
        return layer_norm(layer.normalized_shape, layer.eps)
    if isinstance(layer, nn.AdaptiveAvgPool2d):
        return adaptive_pool(layer.output_size)
    if isinstance(layer, nn.AvgPool2d):
        for name, value in (("ceil_mode", False), ("divisor_override", None)):
            if getattr(layer, name) != value:
                raise OptionError(f"it has no infinite twin with {name}={getattr(layer, name)!r}.")
        return average_pool(vars(layer))
    if isinstance(layer, _SMOOTH):
        # Quadrature calls the module itself, parameters and all, but must keep its own points.
        twin: Any = copy.copy(layer)
        twin.inplace = False
        return Elementwise(twin.forward)
    return None


def _operation(node: fx.Node) -> InfiniteNetwork:
    """The twin of a function or a method of tensors."""
    name = _name(node)
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
    options = _bound(node, call.defaults, call.fixed)
    try:
        return call.twin(options)
    except OptionError as error:
        raise OptionError(f"{where}: {error}") from error


def _is_of_torch(node: fx.Node) -> bool:
    """Whether a call is of torch's own function, and not of another one of the same name."""
    name = _name(node)
    places = (torch, functional, torch.special)
    known = [getattr(place, name.removeprefix("special_"), None) for place in places]
    return node.op == "call_method" or any(node.target is function for function in known)
