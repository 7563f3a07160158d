"""Columns times fixed factors, as a network: what relevances do to rows."""

from __future__ import annotations

from torch import Tensor, nn


class ColumnScale(nn.Module):
    """Multiplies the columns of rows ``(n, d)`` by factors ``(d,)``, a buffer that moves and is saved with it.

    Example:
        >>> import torch
        >>> ColumnScale(torch.tensor([2.0, 0.5]))(torch.ones(1, 2))
        tensor([[2.0000, 0.5000]])
    """

    factors: Tensor

    def __init__(self, factors: Tensor):
        super().__init__()
        self.register_buffer("factors", factors)

    def forward(self, rows: Tensor) -> Tensor:
        """Rows with their columns multiplied."""
        return rows * self.factors
