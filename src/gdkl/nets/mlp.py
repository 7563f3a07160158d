"""Perceptrons that turn rows of a table into features, and a linear head on features."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from gdkl.numerics import OptionError

#: The paper's network for tables: d-100-100-100-20.
PAPER_WIDTHS = (100, 100, 100, 20)


class MLP(nn.Module):
    """Linear layers of given widths with ReLU between them and none after the last, whose outputs are the features.

    Example:
        >>> MLP(13, (100, 20))(torch.zeros(5, 13)).shape
        torch.Size([5, 20])
    """

    def __init__(self, in_features: int, widths: Sequence[int] = PAPER_WIDTHS):
        super().__init__()
        sizes = [in_features, *widths]
        if len(sizes) < 2 or min(sizes) < 1:
            raise OptionError(f"an MLP needs at least one layer and positive widths; got {sizes}.")
        self.in_features = in_features
        self.widths = tuple(int(width) for width in widths)
        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise(sizes):
            # Drawn in float32 whatever torch's default is: a seed means the same weights everywhere.
            layers += [nn.Linear(fan_in, fan_out, dtype=torch.float32), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        """Features ``(..., widths[-1])`` of rows ``(..., in_features)``."""
        return self.layers(x)


class ResidualMLP(nn.Module):
    """Linear layers of given widths; those that keep the width are residual blocks x + ReLU(Wx + b).

    With weights of norm c < 1 a block changes distances by factors between 1 − c and 1 + c. Layers that change the
    width have no activation.

    Example:
        >>> ResidualMLP(13, (100, 100))(torch.zeros(5, 13)).shape
        torch.Size([5, 100])
    """

    def __init__(self, in_features: int, widths: Sequence[int] = (100, 100, 100, 100)):
        super().__init__()
        sizes = [in_features, *widths]
        if len(sizes) < 2 or min(sizes) < 1:
            raise OptionError(f"a residual MLP needs at least one layer and positive widths; got {sizes}.")
        self.in_features = in_features
        self.widths = tuple(int(width) for width in widths)
        self.layers = nn.ModuleList(nn.Linear(*pair, dtype=torch.float32) for pair in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        """Features ``(..., widths[-1])`` of rows ``(..., in_features)``."""
        for layer, width in zip(self.layers, self.widths, strict=True):
            found = layer(x)
            x = x + torch.relu(found) if x.shape[-1] == width else found
        return x


class WithHead(nn.Module):
    """A feature network and a linear layer from its features, to one logit per class or to a Gaussian per output."""

    def __init__(self, network: nn.Module, head: nn.Module):
        super().__init__()
        self.network = network
        self.head = head

    def forward(self, rows: Tensor) -> Tensor:
        """Outputs of the head, ``(n, outputs)``."""
        return self.head(self.network(rows))
