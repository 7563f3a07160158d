"""A feature network with a linear head: the plain classifier that a deep kernel is compared with."""

from __future__ import annotations

from torch import Tensor, nn


class WithHead(nn.Module):
    """A feature network and a linear layer from its features to one logit per class."""

    def __init__(self, network: nn.Module, head: nn.Module):
        super().__init__()
        self.network = network
        self.head = head

    def forward(self, rows: Tensor) -> Tensor:
        """Logits ``(n, classes)``."""
        return self.head(self.network(rows))
