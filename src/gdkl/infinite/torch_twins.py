"""Functions, methods of tensors and modules of torch that have an infinite twin.

A twin takes all arguments that torch's function has behind the tensor, so that none of a call is ever ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import Parameter, signature
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

#: The layer for a call with these arguments.
Twin: TypeAlias = Callable[..., InfiniteNetwork]
#: The arguments of a call by name, all of them.
Options: TypeAlias = dict[str, Any]
#: In the place of a default where there is none.
REQUIRED: Any = Parameter.empty


def defaults(twin: Twin) -> Options:
    """The arguments of a twin with their defaults."""
    return {name: parameter.default for name, parameter in signature(twin).parameters.items()}


def _gelu(approximate: str = "none") -> InfiniteNetwork:
    if approximate not in ("none", "tanh"):
        raise OptionError(f"approximate must be 'none' or 'tanh'; got approximate={approximate!r}.")
    return GELU() if approximate == "none" else Elementwise(partial(functional.gelu, approximate=approximate))


def _precision(dtype: Any) -> Identity:
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise OptionError(f"only .to(dtype) of a floating-point precision has an infinite twin; got {dtype!r}.")
    return Identity()


def _average_pool(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: None = None,
) -> AvgPool2d:
    # torch takes an empty stride for none.
    return AvgPool2d(kernel_size, stride or None, padding, count_include_pad=bool(count_include_pad))


def _flatten(start_dim: int = 0, end_dim: int = -1) -> Flatten:
    if (start_dim, end_dim) != (1, -1):
        raise OptionError(f"only flatten(1) has an infinite twin; got start_dim={start_dim}, end_dim={end_dim}.")
    return Flatten()


def _layer_norm(normalized_shape: Any, weight: None = None, bias: None = None, eps: float = 1e-5) -> LayerNorm:
    if isinstance(normalized_shape, tuple | list) and len(normalized_shape) != 1:
        raise OptionError(f"layer norm must be over one axis; got normalized_shape={normalized_shape}.")
    return LayerNorm(eps)


def _adaptive_pool(output_size: Any) -> GlobalAvgPool2d:
    if output_size not in (1, (1, 1), [1, 1]):
        raise OptionError(f"only output_size=1 has an infinite twin; got output_size={output_size}.")
    return GlobalAvgPool2d()


def _mean(dim: Any = None, keepdim: bool = False, dtype: None = None) -> GlobalAvgPool2d:
    if not isinstance(dim, tuple | list) or sorted(axis % 4 for axis in dim) != [2, 3]:
        raise OptionError(f"only a mean over the pixels, dim=(2, 3), has an infinite twin; got dim={dim}.")
    return GlobalAvgPool2d()


#: Functions and methods of tensors by name.
CALLS: dict[str, Twin] = {
    "relu": lambda inplace=False: ReLU(),
    "leaky_relu": lambda negative_slope=0.01, inplace=False: LeakyReLU(negative_slope),
    "abs": Abs,
    "sign": Sign,
    # The layers have parameters that torch's functions have not.
    "sin": lambda: Sin(a=1.0),
    "cos": lambda: Cos(a=1.0),
    "erf": lambda: Erf(a=1.0),
    "special_erf": lambda: Erf(a=1.0),
    "tanh": lambda: Elementwise(torch.tanh),
    "sigmoid": lambda: Elementwise(torch.sigmoid),
    "softsign": lambda: Elementwise(functional.softsign),
    "silu": lambda inplace=False: Elementwise(functional.silu),
    "mish": lambda inplace=False: Elementwise(functional.mish),
    "selu": lambda inplace=False: Elementwise(functional.selu),
    "elu": lambda alpha=1.0, inplace=False: Elementwise(partial(functional.elu, alpha=alpha)),
    "celu": lambda alpha=1.0, inplace=False: Elementwise(partial(functional.celu, alpha=alpha)),
    "hardtanh": lambda min_val=-1.0, max_val=1.0, inplace=False: Elementwise(
        partial(functional.hardtanh, min_val=min_val, max_val=max_val)
    ),
    "softplus": lambda beta=1, threshold=20: Elementwise(partial(functional.softplus, beta=beta, threshold=threshold)),
    "gelu": _gelu,
    # The twin is the network as evaluated, so that the mode of training has no effect.
    "dropout": lambda p=0.5, training=True, inplace=False: Dropout(float(p)),
    "contiguous": Identity,
    "float": Identity,
    "double": Identity,
    "to": _precision,
    "flatten": _flatten,
    "mean": _mean,
    "adaptive_avg_pool2d": _adaptive_pool,
    "avg_pool2d": _average_pool,
    "layer_norm": _layer_norm,
}
#: Arguments of calls that must stay at their defaults.
FIXED = {"mean": ("dtype",), "avg_pool2d": ("ceil_mode", "divisor_override"), "layer_norm": ("weight", "bias")}

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
    arguments: tuple[Any, ...] = (layer.kernel_size, layer.stride, layer.padding, layer.padding_mode)
    return Conv2d(*arguments, weight_var=w, bias_var=b)


def module_without_weights(layer: nn.Module) -> InfiniteNetwork | None:
    """The twin of a module without weights; None where there is none."""
    name = next((name for kind, name in _FUNCTIONS.items() if isinstance(layer, kind)), None)
    if name is None:
        return None
    usual = defaults(CALLS[name])
    options = {option: getattr(layer, option, default) for option, default in usual.items()}
    # A layer norm's own weight and bias start at one and zero, which is all that the twin knows of weights.
    for option in FIXED.get(name, ()) if name != "layer_norm" else ():
        if options[option] != usual[option]:
            raise OptionError(f"it has no infinite twin with {option}={options[option]!r}.")
    return CALLS[name](**options)
