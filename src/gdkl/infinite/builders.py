"""Whole networks by one call."""

from __future__ import annotations

from gdkl.infinite.conv import Conv2d
from gdkl.infinite.linear import Linear
from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.parameters import whole_number
from gdkl.infinite.piecewise import ReLU
from gdkl.infinite.pooling import Flatten
from gdkl.infinite.residual import Residual
from gdkl.infinite.sequential import Sequential
from gdkl.infinite.spec import activation_by_name


def mlp(
    hidden_layers: int = 3,
    weight_var: float = 1.6,
    bias_var: float = 0.2,
    activation: str | InfiniteNetwork = "relu",
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
    """The infinite wide residual network of the paper, for images.

    A 3 × 3 convolution, three groups of residual blocks at strides 1, 2 and 2, and a linear read-out of all
    pixels. The first block of a group has a 3 × 3 convolution for its shortcut; there is no final activation.

    Args:
        blocks: Blocks a group.
        weight_var: Variance of the weights of every convolution.
        bias_var: Variance of the biases of every convolution.

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
