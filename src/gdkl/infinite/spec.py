"""Networks from plain JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any

from gdkl.infinite.conv import conv_from_spec
from gdkl.infinite.erf import Erf, SigmoidLike
from gdkl.infinite.gaussian import Gaussian
from gdkl.infinite.gelu import GELU
from gdkl.infinite.identity import Dropout, Identity
from gdkl.infinite.linear import Linear
from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.norm import LayerNorm
from gdkl.infinite.piecewise import ABReLU, Abs, LeakyReLU, ReLU, Sign
from gdkl.infinite.pooling import Flatten, GlobalAvgPool2d, pool_from_spec
from gdkl.infinite.residual import Residual
from gdkl.infinite.sequential import Sequential
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
    if not isinstance(layers, Sequence) or isinstance(layers, str | bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"a network's spec must be a list of layers; got {layers!r}.")
    return Sequential(*(_layer(spec) for spec in layers))


def activation_by_name(name: str, **parameters: float) -> InfiniteNetwork:
    """An activation by its name in specs, such as ``"relu"`` or ``"leaky_relu"``.

    Raises:
        OptionError: If the name or a parameter is not known.
    """
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
