"""Functions and methods of tensors that have an infinite twin, with every argument that torch gives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.nn import functional

from gdkl.infinite.elementwise import Elementwise
from gdkl.infinite.erf import Erf
from gdkl.infinite.gelu import GELU
from gdkl.infinite.identity import Dropout, Identity
from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.norm import LayerNorm
from gdkl.infinite.piecewise import Abs, LeakyReLU, ReLU, Sign
from gdkl.infinite.pooling import AvgPool2d, Flatten, GlobalAvgPool2d
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
        {"beta": 1.0, "threshold": 20.0},
        lambda options: Elementwise(partial(functional.softplus, **options)),
    ),
    "gelu": Call({"approximate": "none"}, lambda options: gelu(options["approximate"])),
    # The twin is the network as evaluated, so that the mode of training has no effect.
    "dropout": Call({"p": 0.5, "training": True, "inplace": False}, lambda options: Dropout(float(options["p"]))),
    "contiguous": _plain(Identity),
    "float": _plain(Identity),
    "double": _plain(Identity),
    "to": Call({"dtype": REQUIRED}, lambda options: precision(options["dtype"])),
    "flatten": Call(
        {"start_dim": 0, "end_dim": -1},
        lambda options: flatten(options["start_dim"], options["end_dim"]),
    ),
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
