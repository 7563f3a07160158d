"""Layers that leave every covariance as it is."""

from __future__ import annotations

from gdkl.infinite.network import InfiniteNetwork, Spec
from gdkl.infinite.state import State


class Identity(InfiniteNetwork):
    """φ(x) = x.

    Example:
        >>> import torch
        >>> Identity().kernel(torch.tensor([[2.0]]))
        tensor([[4.]])
    """

    def _propagate(self, state: State) -> State:
        return state

    def _own_spec(self) -> Spec:
        return {"op": "act", "name": "identity"}
