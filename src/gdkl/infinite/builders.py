"""Whole networks by one call."""

from __future__ import annotations

from gdkl.infinite.linear import Linear
from gdkl.infinite.network import InfiniteNetwork, Sequential
from gdkl.infinite.spec import activation_by_name
from gdkl.numerics import OptionError


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
        Sequential(Linear(w_var=1.6, b_var=0.2), ReLU(), Linear(w_var=1.6, b_var=0.2))
    """
    if hidden_layers < 0:
        raise OptionError(f"hidden_layers must be at least 0; got {hidden_layers}.")
    phi = activation_by_name(activation) if isinstance(activation, str) else activation
    layers: list[InfiniteNetwork] = [Linear(weight_var, bias_var)]
    for _ in range(hidden_layers):
        layers += [phi, Linear(weight_var, bias_var)]
    return Sequential(*layers)
