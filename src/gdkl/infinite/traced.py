"""The infinite twin of a finite torch network."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import fx, nn
from torch.nn.utils.parametrize import is_parametrized

from gdkl.infinite.arrays import finite_number
from gdkl.infinite.graph_nodes import (
    IN_PLACE,
    Signal,
    Tracer,
    arguments,
    behind,
    called,
    is_size,
    node_name,
    operation_twin,
)
from gdkl.infinite.layers import Identity, Linear, Residual, Sequential, meets_weights
from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.torch_twins import CALLS, NORMS, REQUIRED, convolution_twin, defaults, module_without_weights
from gdkl.numerics import GdklWarning, OptionError

#: A variance for every layer, or a function of a layer that gives one, or gives the pair of both.
Variance: TypeAlias = float | Callable[[nn.Module], Any]

_ADDITIONS = (operator.add, operator.iadd, torch.add)


def from_torch(module: nn.Module, *, weight_var: Variance, bias_var: Variance) -> Sequential:
    """The infinite-width limit of a torch network, with fresh Gaussian weights; trained weights are ignored.

    The network is traced by ``torch.fx``. Additions of branches become `Residual`, dropout and batch norm the identity
    (with a warning for the latter, since the kernel differs), an activation without a closed form `Elementwise`.
    Activations take what comes in as Gaussian, which it is behind weights: a warning names one on the inputs, on
    another activation, or on a sum with one. (Layers put together by hand are taken as they are meant.)

    Args:
        module: An ``nn.Sequential`` or any module that can be traced.
        weight_var: Variance of the weights before division by fan-in: a number, or a function of the layer
            that gives a number or the pair (weight variance, bias variance).
        bias_var: Variance of the biases, likewise; layers without bias have none. A function that gives pairs is
            passed as both; pairs that the other option contradicts are refused.

    Raises:
        OptionError: If a layer, an operation or an argument of one has no infinite twin, or added branches correlate.

    Example:
        >>> net = nn.Sequential(nn.Linear(13, 100), nn.ReLU(), nn.Linear(100, 1, bias=False))
        >>> from_torch(net, weight_var=1.6, bias_var=0.2)
        Sequential(Linear(weight_var=1.6, bias_var=0.2), ReLU(), Linear(weight_var=1.6, bias_var=0.0))
    """
    if not isinstance(module, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"from_torch takes an nn.Module; got {module!r}.")
    tracer = Tracer()
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


class _Reader:
    """Turns a traced graph into layers."""

    def __init__(self, module: nn.Module, weight_var: Variance, bias_var: Variance) -> None:
        self.modules = dict(module.named_modules())
        self.weight_var, self.bias_var = weight_var, bias_var
        self.used: dict[int, str] = {}
        self.norms: list[str] = []
        self.order: dict[fx.Node, int] = {}
        self.gates: dict[fx.Node, set[fx.Node]] = {}
        self.signals: dict[fx.Node, Signal] = {}
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
                self.signals[node] = Signal("unknown", centred=False, gaussian=False)
            elif not self._is_addition(node):
                self.layers[node] = self._layer(node)
                self.signals[node] = behind(self.layers[node], node, self.signals[self._tensors(node)[0]])
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
        tensors = [other for other in node.all_input_nodes if not is_size(other)]
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
        options = arguments(node, {"other": REQUIRED, "alpha": 1, "out": None}, fixed=("alpha", "out"))
        first = node.args[0] if node.args else node.kwargs["input"]
        tensors = [part for part in (first, options["other"]) if isinstance(part, fx.Node) and not is_size(part)]
        if len(tensors) == 2:
            return tensors[0], tensors[1]
        (constant,) = (part for part in (first, options["other"]) if part is not tensors[0])
        if isinstance(constant, int | float) and constant == 0:
            # Python's sum() starts from it.
            return tensors[0], None
        raise OptionError(f"the addition {node.name!r} adds the constant {constant}, which has no twin: use a bias.")

    def _sum(self, node: fx.Node) -> Signal:
        """What is known of a sum."""
        parts = [self.signals[part] for part in self._addends(node) if part is not None]
        shapes: set[Any] = {part.shape for part in parts}
        # The one that says more stands for both.
        if len(shapes) > 1:
            shapes.discard("unknown")
        if "rows" in shapes:
            shapes.discard("vectors")
        if len(shapes) > 1:
            raise OptionError(f"the addition {node.name!r} joins tensors of different shapes.")
        return Signal(shapes.pop(), all(part.centred for part in parts), all(part.gaussian for part in parts))

    def _refuse_overwriting(self, node: fx.Node) -> None:
        """Refuse what changes a tensor that others read, since a graph does not say who reads it when."""
        if node.target is operator.setitem:
            raise OptionError(f"the operation {node.name!r} assigns to parts of a tensor, which has no twin.")
        readers = [user for other in node.all_input_nodes[:1] for user in other.users if not is_size(user)]
        if node.target in IN_PLACE:
            # What a layer has computed before stays as it is; this is how a residual sum is often written.
            readers = [user for user in readers if not (self.order[user] < self.order[node] and self._is_fresh(user))]
        if len(readers) < 2:
            return
        name = node_name(node)
        if node.op == "call_module":
            inplace = bool(getattr(self.modules[str(node.target)], "inplace", False))
        elif name.removesuffix("_") in CALLS:
            options = arguments(node, defaults(CALLS[name.removesuffix("_")]))
            inplace = bool(options.get("inplace", False)) or name.endswith("_")
        else:
            inplace = node.target in IN_PLACE or (name.endswith("_") and not name.startswith("__"))
        if inplace:
            raise OptionError(
                f"the operation {node.name!r} works in place on a tensor that is used elsewhere too: use "
                "inplace=False, and a = a + b in place of a += b."
            )

    def _is_fresh(self, node: fx.Node) -> bool:
        """Whether a node's result is surely not the memory that it was computed from."""
        fresh = (nn.Linear, nn.Conv2d, nn.LayerNorm, *NORMS)
        return node.op == "call_module" and isinstance(self.modules[str(node.target)], fresh)

    def _layer(self, node: fx.Node) -> InfiniteNetwork:
        if len(self._tensors(node)) != 1:
            raise OptionError(f"{called(node)} has no infinite twin.")
        if node.op != "call_module":
            return operation_twin(node)
        name = str(node.target)
        layer = self.modules[name]
        if isinstance(layer, nn.Linear | nn.Conv2d):
            self._refuse_sharing(name, layer)
            if is_parametrized(layer):
                raise OptionError(f"the layer {name!r} has parametrized weights, which have no infinite twin.")
            w, b = self._variances(name, layer)
            return Linear(w, b) if isinstance(layer, nn.Linear) else convolution_twin(name, layer, w, b)
        if isinstance(layer, NORMS):
            self.norms.append(name)
            return Identity()
        try:
            twin = module_without_weights(layer)
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


def _pick(given: Any, index: int, option: str) -> float:
    """A variance out of what was given for a layer, a number or the pair of both."""
    if isinstance(given, tuple | list):
        pair: Any = given
        if len(pair) != 2:
            raise OptionError(f"{option} must give a number or the pair (weight, bias variance); got {pair!r}.")
        given = pair[index]
    return finite_number(given, option, least=0.0)
