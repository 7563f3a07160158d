"""Twins of torch's modules: convolutions, and everything without weights."""

from __future__ import annotations

from typing import Any

from torch import nn

from gdkl.infinite.conv import Conv2d
from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.torch_calls import CALLS
from gdkl.numerics import OptionError

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
