"""Fully connected layers."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from gdkl.infinite.finite import FiniteLinear
from gdkl.infinite.network import InfiniteNetwork, Spec
from gdkl.infinite.parameters import finite_number
from gdkl.infinite.program import Affine, Op


class Linear(InfiniteNetwork):
    """A fully connected layer: K ← w·K + b, T ← K + w·T.

    On images it acts on the channels of each pixel, as a 1 × 1 convolution.

    Args:
        weight_var: Variance w of the weights, before division by the number of inputs.
        bias_var: Variance b of the biases.

    Example:
        >>> import torch
        >>> Linear(weight_var=2.0, bias_var=0.5).kernel(torch.tensor([[1.0, 1.0]]))
        tensor([[2.5000]])
    """

    def __init__(self, weight_var: float = 1.0, bias_var: float = 0.0) -> None:
        self.weight_var = finite_number(weight_var, "weight_var", least=0.0)
        self.bias_var = finite_number(bias_var, "bias_var", least=0.0)

    def _ops(self) -> Iterator[Op]:
        yield Affine(self.weight_var, self.bias_var)

    @property
    def _has_weights(self) -> bool:
        return True

    def _finite(self, width: int, outputs: int) -> nn.Module:
        del width
        return FiniteLinear(outputs, self.weight_var, self.bias_var)

    def _own_spec(self) -> Spec:
        return {"op": "dense", "w_var": self.weight_var, "b_var": self.bias_var}
