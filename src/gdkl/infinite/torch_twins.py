"""Functions, methods of tensors and modules of torch that have an infinite twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn import functional

from gdkl.infinite.elementwise import Elementwise
from gdkl.infinite.error_functions import GELU, Erf
from gdkl.infinite.image_layers import AvgPool2d, Conv2d, Flatten, GlobalAvgPool2d
from gdkl.infinite.layers import Dropout, Identity, LayerNorm
from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.piecewise import Abs, LeakyReLU, ReLU, Sign
from gdkl.infinite.waves import Cos, Sin
from gdkl.numerics import OptionError

#: The options of a call by name, all of them.
Options: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A function or method of tensors: its arguments behind the tensor, in order, and the twin of a call.

    Every argument that torch's function has is listed here, so that none of a call is ever ignored.

    Attributes:
        defaults: Arguments with their defaults, ``REQUIRED`` for those without one.
        twin: The layer for a call with these arguments.
        fixed: Arguments that must stay at their defaults.
    """

    defaults: Options
    twin: Callable[[Options], InfiniteNetwork]
    fixed: tuple[str, ...] = ()


#: In the place of a default where there is none.
REQUIRED: Any = object()


def _plain(layer: Callable[[], InfiniteNetwork]) -> Call:
    return Call({}, lambda _: layer())


def _smooth(function: Callable[..., Any], **defaults: float) -> Call:
    """A function that goes through quadrature, with its parameters."""

    def twin(options: Options) -> InfiniteNetwork:
        parameters = {name: options[name] for name in defaults}
        return Elementwise(partial(function, **parameters) if parameters else function)

    return Call({**defaults, "inplace": False}, twin)


def gelu(approximate: str) -> InfiniteNetwork:
    """Twin of GELU, exact or by torch's approximation."""
    if approximate not in ("none", "tanh"):
        raise OptionError(f"approximate must be 'none' or 'tanh'; got approximate={approximate!r}.")
    return GELU() if approximate == "none" else Elementwise(partial(functional.gelu, approximate=approximate))


def precision(dtype: Any) -> Identity:
    """Twin of a change of precision, which an infinite network has not."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise OptionError(f"only .to(dtype) of a floating-point precision has an infinite twin; got {dtype!r}.")
    return Identity()


def average_pool(options: Options) -> AvgPool2d:
    """Twin of an average pooling."""
    # torch takes an empty stride for none.
    return AvgPool2d(
        options["kernel_size"],
        options["stride"] or None,
        options["padding"],
        count_include_pad=bool(options["count_include_pad"]),
    )


def flatten(start: int, end: int) -> Flatten:
    """Twin of a flattening."""
    if (start, end) != (1, -1):
        raise OptionError(f"only flatten(1) has an infinite twin; got start_dim={start}, end_dim={end}.")
    return Flatten()


def layer_norm(shape: Any, eps: float) -> LayerNorm:
    """Twin of a layer norm."""
    if isinstance(shape, tuple | list) and len(shape) != 1:
        raise OptionError(f"layer norm must be over one axis; got normalized_shape={shape}.")
    return LayerNorm(eps)


def adaptive_pool(size: Any) -> GlobalAvgPool2d:
    """Twin of an adaptive average pooling."""
    if size not in (1, (1, 1), [1, 1]):
        raise OptionError(f"only output_size=1 has an infinite twin; got output_size={size}.")
    return GlobalAvgPool2d()


def mean_over_pixels(dims: Any) -> GlobalAvgPool2d:
    """Twin of a mean."""
    if not isinstance(dims, tuple | list) or sorted(dim % 4 for dim in dims) != [2, 3]:
        raise OptionError(f"only a mean over the pixels, dim=(2, 3), has an infinite twin; got dim={dims}.")
    return GlobalAvgPool2d()


#: Functions and methods of tensors by name.
CALLS: dict[str, Call] = {
    "relu": Call({"inplace": False}, lambda _: ReLU()),
    "leaky_relu": Call(
        {"negative_slope": 0.01, "inplace": False}, lambda options: LeakyReLU(options["negative_slope"])
    ),
    "abs": _plain(Abs),
    "sign": _plain(Sign),
    "sin": _plain(Sin),
    "cos": _plain(Cos),
    "erf": _plain(Erf),
    "special_erf": _plain(Erf),
    "tanh": _plain(lambda: Elementwise(torch.tanh)),
    "sigmoid": _plain(lambda: Elementwise(torch.sigmoid)),
    "softsign": _plain(lambda: Elementwise(functional.softsign)),
    "silu": _smooth(functional.silu),
    "mish": _smooth(functional.mish),
    "selu": _smooth(functional.selu),
    "elu": _smooth(functional.elu, alpha=1.0),
    "celu": _smooth(functional.celu, alpha=1.0),
    "hardtanh": _smooth(functional.hardtanh, min_val=-1.0, max_val=1.0),
    "softplus": Call(
        {"beta": 1.0, "threshold": 20.0}, lambda options: Elementwise(partial(functional.softplus, **options))
    ),
    "gelu": Call({"approximate": "none"}, lambda options: gelu(options["approximate"])),
    # The twin is the network as evaluated, so that the mode of training has no effect.
    "dropout": Call({"p": 0.5, "training": True, "inplace": False}, lambda options: Dropout(float(options["p"]))),
    "contiguous": _plain(Identity),
    "float": _plain(Identity),
    "double": _plain(Identity),
    "to": Call({"dtype": REQUIRED}, lambda options: precision(options["dtype"])),
    "flatten": Call({"start_dim": 0, "end_dim": -1}, lambda options: flatten(options["start_dim"], options["end_dim"])),
    "mean": Call(
        {"dim": None, "keepdim": False, "dtype": None},
        lambda options: mean_over_pixels(options["dim"]),
        fixed=("dtype",),
    ),
    "adaptive_avg_pool2d": Call({"output_size": REQUIRED}, lambda options: adaptive_pool(options["output_size"])),
    "avg_pool2d": Call(
        {
            "kernel_size": REQUIRED,
            "stride": None,
            "padding": 0,
            "ceil_mode": False,
            "count_include_pad": True,
            "divisor_override": None,
        },
        average_pool,
        fixed=("ceil_mode", "divisor_override"),
    ),
    "layer_norm": Call(
        {"normalized_shape": REQUIRED, "weight": None, "bias": None, "eps": 1e-5},
        lambda options: layer_norm(options["normalized_shape"], options["eps"]),
        fixed=("weight", "bias"),
    ),
}


#: Norms over a batch, which count as the identity.
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm)
#: Modules without weights and the functions that they call, whose arguments are attributes of the same names.
_FUNCTIONS: dict[type[nn.Module], str] = {
    nn.AdaptiveAvgPool2d: "adaptive_avg_pool2d",
    nn.AvgPool2d: "avg_pool2d",
    nn.Identity: "contiguous",
    nn.LayerNorm: "layer_norm",
    nn.LeakyReLU: "leaky_relu",
    **dict.fromkeys((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout), "dropout"),
    **{
        layer: layer.__name__.lower()
        for layer in (
            *(nn.CELU, nn.ELU, nn.Flatten, nn.GELU, nn.Hardtanh, nn.Mish, nn.ReLU),
            *(nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Softsign, nn.Tanh),
        )
    },
}


def convolution_twin(name: str, layer: nn.Conv2d, w: float, b: float) -> InfiniteNetwork:
    """The twin of a convolution with given variances of weights and biases."""
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


def module_without_weights(layer: nn.Module) -> InfiniteNetwork | None:
    """The twin of a module without weights; None where there is none."""
    name = next((name for kind, name in _FUNCTIONS.items() if isinstance(layer, kind)), None)
    if name is None:
        return None
    call = CALLS[name]
    options = {option: getattr(layer, option, default) for option, default in call.defaults.items()}
    for option in call.fixed:
        # A layer norm's own weight and bias start at one and zero, which is all that the twin knows of weights.
        if name != "layer_norm" and options[option] != call.defaults[option]:
            raise OptionError(f"it has no infinite twin with {option}={options[option]!r}.")
    return call.twin(options)
