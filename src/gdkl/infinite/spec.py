"""Networks from plain JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gdkl.infinite.conv import conv_from_spec
from gdkl.infinite.erf import Erf, SigmoidLike
from gdkl.infinite.gaussian import Gaussian
from gdkl.infinite.gelu import GELU
from gdkl.infinite.identity import Dropout, Identity
from gdkl.infinite.linear import Linear
from gdkl.infinite.network import InfiniteNetwork, Sequential
from gdkl.infinite.norm import LayerNorm
from gdkl.infinite.piecewise import ABReLU, Abs, LeakyReLU, ReLU, Sign
from gdkl.infinite.pooling import Flatten, GlobalAvgPool2d, pool_from_spec
from gdkl.infinite.residual import Residual
from gdkl.infinite.waves import RBF, Cos, Sin
from gdkl.numerics import OptionError

#: Activations by their name in a spec; the other entries of the spec are the arguments.
ACTIVATIONS: dict[str, Callable[..., InfiniteNetwork]] = {
    "relu": ReLU,
    "leaky_relu": LeakyReLU,
    "abrelu": ABReLU,
    "abs": Abs,
    "sign": Sign,
    "erf": Erf,
    "sigmoid_like": SigmoidLike,
    "gelu": GELU,
    "gaussian": Gaussian,
    "rbf": RBF,
    "sin": Sin,
    "cos": Cos,
    "identity": Identity,
}


def from_spec(layers: Sequence[Mapping[str, Any]]) -> Sequential:
    """Build a network from the list that its ``to_spec()`` gave.

    Args:
        layers: One mapping a layer, with its ``"op"`` and its parameters.

    Raises:
        OptionError: If an entry is not known.

    Example:
        >>> from_spec([{"op": "dense", "w_var": 2.0, "b_var": 0.1}, {"op": "act", "name": "relu"}])
        Sequential(Linear(weight_var=2.0, bias_var=0.1), ReLU())
    """
    return Sequential(*(_layer(spec) for spec in layers))


def activation_by_name(name: str, **parameters: float) -> InfiniteNetwork:
    """An activation by its name in specs, such as ``"relu"`` or ``"leaky_relu"``.

    Raises:
        OptionError: If the name or a parameter is not known.

    Example:
        >>> activation_by_name("leaky_relu", alpha=0.1)
        LeakyReLU(alpha=0.1)
    """
    if name not in ACTIVATIONS:
        raise OptionError(f"activation {name!r} is not known: use one of {', '.join(sorted(ACTIVATIONS))}.")
    try:
        return ACTIVATIONS[name](**parameters)
    except TypeError as error:
        raise OptionError(f"activation {name!r} does not take {sorted(parameters)}.") from error


def _layer(spec: Mapping[str, Any]) -> InfiniteNetwork:
    rest = {key: value for key, value in spec.items() if key != "op"}
    op = spec.get("op")
    if op == "act":
        return activation_by_name(rest.pop("name", ""), **rest)
    build = _BUILDERS.get(str(op))
    if build is None:
        raise OptionError(f"op {op!r} is not known: use one of {', '.join(['act', *sorted(_BUILDERS)])}.")
    try:
        return build(**rest)
    except TypeError as error:
        raise OptionError(f"op {op!r} does not take the entries {sorted(rest)}.") from error


def _dense(w_var: float, b_var: float) -> InfiniteNetwork:
    return Linear(weight_var=w_var, bias_var=b_var)


def _residual(main: Sequence[Mapping[str, Any]], shortcut: Sequence[Mapping[str, Any]]) -> InfiniteNetwork:
    return Residual(from_spec(main), from_spec(shortcut))


_BUILDERS: dict[str, Callable[..., InfiniteNetwork]] = {
    "dense": _dense,
    "conv": conv_from_spec,
    "avgpool": pool_from_spec,
    "global_avg_pool": GlobalAvgPool2d,
    "flatten": Flatten,
    "layer_norm": LayerNorm,
    "residual": _residual,
    "dropout": Dropout,
}
