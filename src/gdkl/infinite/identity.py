"""Layers that leave every covariance as it is."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from gdkl.infinite.network import InfiniteNetwork, Spec
from gdkl.infinite.parameters import finite_number
from gdkl.infinite.program import Op
from gdkl.numerics import OptionError


class Identity(InfiniteNetwork):
    """φ(x) = x.

    Example:
        >>> import torch
        >>> Identity().kernel(torch.tensor([[2.0]]))
        tensor([[4.]])
    """

    def _ops(self) -> Iterator[Op]:
        return iter(())

    def _finite(self, width: int, outputs: int) -> nn.Module:
        del width, outputs
        return nn.Identity()

    def _own_spec(self) -> Spec:
        return {"op": "act", "name": "identity"}


class Dropout(InfiniteNetwork):
    """Dropout as in evaluation: the identity.

    Args:
        p: Share of units that training would drop; it has no effect on the kernel.

    Example:
        >>> import torch
        >>> Dropout(0.3).kernel(torch.tensor([[2.0]]))
        tensor([[4.]])
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = finite_number(p, "p", least=0.0)
        if self.p > 1:
            raise OptionError(f"p must be a share between 0 and 1; got {p!r}.")

    def _ops(self) -> Iterator[Op]:
        return iter(())

    def _finite(self, width: int, outputs: int) -> nn.Module:
        del width, outputs
        return nn.Identity()

    def _own_spec(self) -> Spec:
        return {"op": "dropout", "p": self.p}
