"""The infinite twin of a finite torch network."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx, nn
from torch.fx.proxy import TraceError
from torch.nn import functional

from gdkl.infinite.conv import Conv2d
from gdkl.infinite.elementwise import Elementwise
from gdkl.infinite.gelu import GELU
from gdkl.infinite.identity import Dropout, Identity
from gdkl.infinite.linear import Linear
from gdkl.infinite.network import InfiniteNetwork, Sequential
from gdkl.infinite.norm import LayerNorm
from gdkl.infinite.piecewise import Abs, LeakyReLU, ReLU, Sign
from gdkl.infinite.pooling import AvgPool2d, Flatten, GlobalAvgPool2d
from gdkl.infinite.residual import Residual
from gdkl.infinite.waves import Cos, Sin
from gdkl.numerics import GdklWarning, OptionError

#: A variance for every layer, or a function of a layer that gives one, or gives the pair of both.
Variance: TypeAlias = float | Callable[[nn.Module], Any]

#: Functions and methods of tensors by name, for those without parameters.
_PLAIN: dict[str, Callable[[], InfiniteNetwork]] = {
    "relu": ReLU,
    "relu_": ReLU,
    "abs": Abs,
    "sign": Sign,
    "sin": Sin,
    "cos": Cos,
    "tanh": lambda: Elementwise(torch.tanh),
    "sigmoid": lambda: Elementwise(torch.sigmoid),
    "silu": lambda: Elementwise(functional.silu),
    "softplus": lambda: Elementwise(functional.softplus),
    "mish": lambda: Elementwise(functional.mish),
    "elu": lambda: Elementwise(functional.elu),
    "erf": lambda: Elementwise(torch.erf),
    "gelu": GELU,
    "dropout": Dropout,
    "flatten": Flatten,
    "contiguous": Identity,
}
_ADDITIONS = (operator.add, operator.iadd, torch.add)
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
    `Elementwise`.

    Args:
        module: An ``nn.Sequential`` or any module that can be traced.
        weight_var: Variance of the weights before division by fan-in: a number, or a function of the layer
            that gives a number or the pair (weight variance, bias variance).
        bias_var: Variance of the biases, likewise; layers without bias have none.

    Raises:
        OptionError: If a layer or an operation has no infinite twin; the message names it.

    Example:
        >>> net = nn.Sequential(nn.Linear(13, 100), nn.ReLU(), nn.Linear(100, 1, bias=False))
        >>> from_torch(net, weight_var=1.6, bias_var=0.2)
        Sequential(Linear(weight_var=1.6, bias_var=0.2), ReLU(), Linear(weight_var=1.6, bias_var=0.0))
    """
    try:
        tracer = _Tracer()
        graph = tracer.trace(module)
    except (TraceError, TypeError, NotImplementedError) as error:
        raise OptionError(
            f"{type(module).__name__} cannot be traced ({error}): build it from gdkl.infinite's layers."
        ) from error
    reader = _Reader(module, weight_var, bias_var)
    return Sequential(*reader.read(graph))


class _Tracer(fx.Tracer):
    """Traces into the user's modules, and stops at those of torch."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, nn.Linear | nn.Conv2d) or super().is_leaf_module(m, module_qualified_name)


class _Reader:
    """Turns a traced graph into layers."""

    def __init__(self, module: nn.Module, weight_var: Variance, bias_var: Variance) -> None:
        self.modules = dict(module.named_modules())
        self.weight_var, self.bias_var = weight_var, bias_var
        self.used: set[str] = set()

    def read(self, graph: fx.Graph) -> list[InfiniteNetwork]:
        nodes = list(graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder" and node.users]
        (output,) = (node for node in nodes if node.op == "output")
        if len(inputs) != 1 or not isinstance(output.args[0], fx.Node):
            raise OptionError("the network must take one tensor and return one.")
        self.order = {node: i for i, node in enumerate(nodes)}
        self.gates: dict[fx.Node, set[fx.Node]] = {}
        for node in nodes:
            # The nodes that every path from the input to this one goes through.
            before = [self.gates[other] for other in self._tensors(node)]
            self.gates[node] = {node} | (set[fx.Node].intersection(*before) if before else set())
        return self._between(inputs[0], output.args[0])

    def _tensors(self, node: fx.Node) -> list[fx.Node]:
        """What a node computes with, sizes aside."""
        if node.op == "placeholder":
            return []
        return [other for other in node.all_input_nodes if not self._is_size(other)]

    @staticmethod
    def _is_size(node: fx.Node) -> bool:
        if node.op == "call_method":
            return node.target in ("size", "dim")
        if node.op != "call_function":
            return False
        shape_of = node.target is getattr and node.args[1] == "shape"
        return shape_of or node.target is operator.getitem

    def _between(self, start: fx.Node, end: fx.Node) -> list[InfiniteNetwork]:
        """The layers that lead from one node to another."""
        layers: list[InfiniteNetwork] = []
        while end is not start:
            inputs = self._tensors(end)
            if self._is_addition(end) and len(inputs) in (1, 2):
                a, b = inputs if len(inputs) == 2 else (inputs[0], inputs[0])
                fork = max(self.gates[a] & self.gates[b], key=self.order.__getitem__)
                main, shortcut = self._between(fork, a), self._between(fork, b)
                if not (_has_weights(main) or _has_weights(shortcut)):
                    raise OptionError(f"the addition {end.name!r} joins branches without weights, which correlate.")
                layers.append(Residual(Sequential(*main), Sequential(*shortcut)))
                end = fork
                continue
            if len(inputs) != 1:
                raise OptionError(f"the operation {end.name!r} ({end.target}) has no infinite twin.")
            layers.append(self._layer(end))
            (end,) = inputs
        return layers[::-1]

    @staticmethod
    def _is_addition(node: fx.Node) -> bool:
        if node.op == "call_function":
            return node.target in _ADDITIONS
        return node.op == "call_method" and node.target in ("add", "add_")

    def _layer(self, node: fx.Node) -> InfiniteNetwork:
        if node.op == "call_module":
            name = str(node.target)
            if isinstance(self.modules[name], nn.Linear | nn.Conv2d) and name in self.used:
                raise OptionError(f"the layer {name!r} is used twice, and shared weights correlate.")
            self.used.add(name)
            return self._module(name, self.modules[name])
        if node.op in ("call_function", "call_method"):
            return _operation(node)
        raise OptionError(f"{node.op} {node.name!r} has no infinite twin.")

    def _module(self, name: str, layer: nn.Module) -> InfiniteNetwork:
        weights = isinstance(layer, nn.Linear | nn.Conv2d)
        if weights:
            w = _pick(self.weight_var, layer, 0)
            b = 0.0 if layer.bias is None else _pick(self.bias_var, layer, 1)
            if isinstance(layer, nn.Linear):
                return Linear(w, b)
            return _convolution(name, layer, w, b)
        if isinstance(layer, _NORMS):
            warnings.warn(
                f"batch norm {name!r} counts as the identity, which changes the kernel: LayerNorm would keep "
                "its meaning.",
                GdklWarning,
                stacklevel=2,
            )
            return Identity()
        twin = _module_without_weights(layer)
        if twin is None:
            raise OptionError(f"the layer {name!r} ({type(layer).__name__}) has no infinite twin.")
        return twin


def _has_weights(layers: list[InfiniteNetwork]) -> bool:
    return any(
        isinstance(layer, Linear | Conv2d)
        or (isinstance(layer, Residual) and _has_weights([*layer.main.layers, *layer.shortcut.layers]))
        for layer in layers
    )


def _pick(variance: Variance, layer: nn.Module, index: int) -> float:
    """A layer's variance, from a number, or from a function that gives it or the pair of both."""
    if not callable(variance):
        return float(variance)
    value = variance(layer)
    return float(value[index] if isinstance(value, tuple | list) else value)


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
        return GELU() if layer.approximate == "none" else Elementwise(layer.forward)
    if isinstance(layer, nn.Identity):
        return Identity()
    if isinstance(layer, _DROPOUTS):
        return Dropout(layer.p)
    if isinstance(layer, nn.Flatten) and layer.start_dim == 1 and layer.end_dim == -1:
        return Flatten()
    if isinstance(layer, nn.LayerNorm) and len(layer.normalized_shape) == 1:
        return LayerNorm(layer.eps)
    if isinstance(layer, nn.AdaptiveAvgPool2d) and layer.output_size in (1, (1, 1)):
        return GlobalAvgPool2d()
    if isinstance(layer, nn.AvgPool2d) and not layer.ceil_mode and layer.divisor_override is None:
        return _average(layer.kernel_size, layer.stride, layer.padding, include=layer.count_include_pad)
    if isinstance(layer, _SMOOTH):
        return Elementwise(layer.forward)
    return None


def _average(size: Any, stride: Any, padding: Any, *, include: bool) -> AvgPool2d:
    return AvgPool2d(size, size if stride is None else stride, padding, count_include_pad=include)


def _operation(node: fx.Node) -> InfiniteNetwork:
    """The twin of a function or a method of tensors."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    arguments, options = node.args[1:], dict(node.kwargs)
    if name == "leaky_relu":
        slope: Any = arguments[0] if arguments else options.get("negative_slope", 0.01)
        return LeakyReLU(slope)
    if name == "gelu" and options.get("approximate", "none") != "none":
        return Elementwise(_tanh_gelu)
    if name in ("view", "reshape") and len(arguments) == 2 and arguments[1] == -1:
        return Flatten()
    if name == "flatten" and (arguments or (options.get("start_dim"),))[0] != 1:
        raise OptionError(f"the operation {node.name!r} flattens the batch too: use flatten(1).")
    if name == "mean" and _pixels(arguments[0] if arguments else options.get("dim")):
        return GlobalAvgPool2d()
    if name == "adaptive_avg_pool2d" and arguments and arguments[0] in (1, (1, 1), [1, 1]):
        return GlobalAvgPool2d()
    if name == "avg_pool2d":
        known = dict(zip(("kernel_size", "stride", "padding"), arguments, strict=False)) | options
        return _average(
            known["kernel_size"],
            known.get("stride"),
            known.get("padding", 0),
            include=bool(known.get("count_include_pad", True)),
        )
    if name in _PLAIN:
        return _PLAIN[str(name)]()
    raise OptionError(f"the operation {node.name!r} ({name}) has no infinite twin.")


def _pixels(dims: Any) -> bool:
    """Whether a mean is over the pixels of images."""
    return isinstance(dims, tuple | list) and sorted(dim % 4 for dim in dims) == [2, 3]


def _tanh_gelu(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")
