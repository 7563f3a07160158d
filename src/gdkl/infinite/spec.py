"""Networks from plain JSON, and whole networks by one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any

from gdkl.infinite.arrays import whole_number
from gdkl.infinite.error_functions import GELU, Erf, SigmoidLike
from gdkl.infinite.image_layers import Conv2d, Flatten, GlobalAvgPool2d, conv_from_spec, pool_from_spec
from gdkl.infinite.layers import Dropout, Identity, LayerNorm, Linear, Residual, Sequential
from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.piecewise import ABReLU, Abs, LeakyReLU, ReLU, Sign
from gdkl.infinite.waves import RBF, Cos, Gaussian, Sin
from gdkl.numerics import OptionError

#: Activations by their name in a spec; the other entries of the spec are the arguments.
ACTIVATIONS: dict[str, Callable[..., InfiniteNetwork]] = {
    "identity": Identity,
    **{
        kind._name: kind
        for kind in (ReLU, LeakyReLU, ABReLU, Abs, Sign, Erf, SigmoidLike, GELU, Gaussian, RBF, Sin, Cos)
    },
}


def from_spec(layers: Sequence[Mapping[str, Any]]) -> Sequential:
    """Build a network from the list that its ``to_spec()`` gave: per layer a mapping with its ``"op"`` and parameters.

    Example:
        >>> from_spec([{"op": "dense", "w_var": 2.0, "b_var": 0.1}, {"op": "act", "name": "relu"}])
        Sequential(Linear(weight_var=2.0, bias_var=0.1), ReLU())
    """
    if not isinstance(layers, Sequence) or isinstance(layers, str | bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"a network's spec must be a list of layers; got {layers!r}.")
    return Sequential(*(_layer(spec) for spec in layers))


def activation_by_name(name: str, **parameters: float) -> InfiniteNetwork:
    """An activation by its name in specs, such as ``"relu"`` or ``"leaky_relu"``."""
    if not isinstance(name, str) or name not in ACTIVATIONS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"activation {name!r} is not known: use one of {', '.join(sorted(ACTIVATIONS))}.")
    return _built(ACTIVATIONS[name], parameters, f"activation {name!r}")


def _layer(spec: Mapping[str, Any]) -> InfiniteNetwork:
    if not isinstance(spec, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"a layer of a spec must be a mapping with an 'op'; got {spec!r}.")
    rest = {str(key): value for key, value in spec.items() if key != "op"}
    op = spec.get("op")
    if op == "act":
        if "name" not in rest:
            raise OptionError("op 'act' lacks the entries name.")
        return activation_by_name(rest.pop("name"), **rest)
    build = _BUILDERS.get(str(op))
    if build is None:
        raise OptionError(f"op {op!r} is not known: use one of {', '.join(['act', *sorted(_BUILDERS)])}.")
    return _built(build, rest, f"op {op!r}")


def _built(build: Callable[..., InfiniteNetwork], entries: Mapping[str, Any], what: str) -> InfiniteNetwork:
    """A layer from its entries, none unknown and none missing."""
    known = signature(build).parameters
    unknown = [name for name in entries if name not in known]
    if unknown:
        takes = ", ".join(known) or "none"
        raise OptionError(f"{what} does not take the entries {', '.join(unknown)}; it takes {takes}.")
    missing = [name for name in known if name not in entries and known[name].default is Parameter.empty]
    if missing:
        raise OptionError(f"{what} lacks the entries {', '.join(missing)}.")
    return build(**entries)


_BUILDERS: dict[str, Callable[..., InfiniteNetwork]] = {
    "dense": lambda w_var, b_var: Linear(weight_var=w_var, bias_var=b_var),
    "conv": conv_from_spec,
    "avgpool": pool_from_spec,
    "global_avg_pool": GlobalAvgPool2d,
    "flatten": Flatten,
    "layer_norm": LayerNorm,
    "residual": lambda main, shortcut: Residual(from_spec(main), from_spec(shortcut)),
    "dropout": Dropout,
}


def mlp(
    hidden_layers: int = 3, weight_var: float = 1.6, bias_var: float = 0.2, activation: str | InfiniteNetwork = "relu"
) -> Sequential:
    """A fully connected network with one activation and one pair of variances throughout.

    Args:
        hidden_layers: How many hidden layers, at least zero.
        weight_var: Variance of the weights of every layer.
        bias_var: Variance of the biases of every layer.
        activation: Its name in specs (``"relu"``, ``"erf"``, ...) or the layer itself.

    Example:
        >>> mlp(hidden_layers=1)
        Sequential(Linear(weight_var=1.6, bias_var=0.2), ReLU(), Linear(weight_var=1.6, bias_var=0.2))
    """
    hidden_layers = whole_number(hidden_layers, "hidden_layers", least=0)
    phi = activation_by_name(activation) if isinstance(activation, str) else activation
    layers: list[InfiniteNetwork] = [Linear(weight_var, bias_var)]
    for _ in range(hidden_layers):
        layers += [phi, Linear(weight_var, bias_var)]
    return Sequential(*layers)


def wide_resnet(blocks: int = 4, weight_var: float = 5.0, bias_var: float = 0.2) -> Sequential:
    """The infinite wide residual network of the paper, for images, with one pair of variances for all convolutions.

    A 3 × 3 convolution, three groups of residual ``blocks`` at strides 1, 2 and 2, and a linear read-out of all pixels.
    The first block of a group has a 3 × 3 convolution for its shortcut; there is no final activation.

    Example:
        >>> len(wide_resnet(blocks=2).layers)
        9
    """
    blocks = whole_number(blocks, "blocks", least=1)

    def conv(stride: int) -> Conv2d:
        return Conv2d(3, stride, "same", weight_var=weight_var, bias_var=bias_var)

    layers: list[InfiniteNetwork] = [conv(1)]
    for group_stride in (1, 2, 2):
        for block in range(blocks):
            stride = group_stride if block == 0 else 1
            main = Sequential(ReLU(), conv(stride), ReLU(), conv(1))
            layers.append(Residual(main, conv(stride) if block == 0 else None))
    return Sequential(*layers, Flatten(), Linear(1.0, 0.0))
