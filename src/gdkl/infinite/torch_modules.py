"""Twins of torch's modules: convolutions, and everything without weights."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from gdkl.infinite.conv import Conv2d
from gdkl.infinite.elementwise import Elementwise
from gdkl.infinite.identity import Dropout, Identity
from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.piecewise import LeakyReLU, ReLU
from gdkl.infinite.torch_calls import adaptive_pool, average_pool, flatten, gelu, layer_norm
from gdkl.numerics import OptionError

#: Norms over a batch, which count as the identity.
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm)
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
