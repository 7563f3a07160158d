"""Normalisation over channels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from torch import nn

from gdkl.infinite.finite import FiniteFunction, channel_norm
from gdkl.infinite.network import InfiniteNetwork, Spec
from gdkl.infinite.parameters import finite_number
from gdkl.infinite.program import Normalise, Op


class LayerNorm(InfiniteNetwork):
    """Normalisation of each pixel, or each vector, over its channels: K ← K / √((q1 + eps)(q2 + eps)).

    Correlations stay as they are. No mean is subtracted: behind weights, where the mean over infinitely many
    channels is zero, that is the usual layer norm, and elsewhere a root-mean-square norm.

    Args:
        eps: Term that keeps the divisor from zero.

    Example:
        >>> import torch
        >>> LayerNorm().diagonal(torch.tensor([[3.0, 4.0]]))
        tensor([1.0000])
    """

    def __init__(self, eps: float = 1e-5) -> None:
        self.eps = finite_number(eps, "eps", least=0.0)

    def _ops(self) -> Iterator[Op]:
        yield Normalise(self.eps)

    def _finite(self, width: int, outputs: int) -> nn.Module:
        del width, outputs
        return FiniteFunction(partial(channel_norm, eps=self.eps), "norm over channels")

    def _own_spec(self) -> Spec:
        return {"op": "layer_norm", "eps": self.eps}
