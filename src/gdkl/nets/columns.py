"""Columns times fixed factors, as a network: what relevances do to rows."""

from __future__ import annotations

from copy import deepcopy

from torch import Tensor, nn

from gdkl.nets.members import Members


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


def scales_columns(network: nn.Module) -> bool:
    """Whether a network is a `ColumnScale` with another network behind it.

    Example:
        >>> import torch
        >>> scales_columns(nn.Sequential(ColumnScale(torch.ones(2)), nn.Linear(2, 1)))
        True
    """
    return type(network) is nn.Sequential and len(network) == 2 and isinstance(network[0], ColumnScale)


def with_columns(networks: Members, multipliers: Tensor) -> Members:
    """Networks that multiply the columns by their relevances themselves."""
    single = [deepcopy(networks.select(slice(k, k + 1)).single) for k in range(networks.count)]
    scales = (ColumnScale(multipliers[k % len(multipliers)]) for k in range(len(single)))
    return Members([nn.Sequential(*pair) for pair in zip(scales, single, strict=True)]).requires_grad_(False).eval()
