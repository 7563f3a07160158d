"""Normalisation over channels."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from gdkl.infinite.finite import FiniteFunction, channel_norm
from gdkl.infinite.network import InfiniteNetwork, Spec
from gdkl.infinite.parameters import finite_number
from gdkl.infinite.state import State


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

    def _propagate(self, state: State) -> State:
        q1, factor1 = self._normalised(state.q1)
        q2, factor2 = (q1, factor1) if state.q2 is state.q1 else self._normalised(state.q2)
        f1, f2 = state.left(factor1), state.right(factor2)
        return replace(
            state,
            q1=q1,
            q2=q2,
            k=None if state.k is None else state.k * f1 * f2,
            ntk=None if state.ntk is None else state.ntk * f1 * f2,
        )

    def _normalised(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Variances q / (q + eps) and factors 1 / √(q + eps)."""
        tiny = torch.finfo(q.dtype).tiny
        if self.eps > tiny**0.5:
            return q / (q + self.eps), (q + self.eps).rsqrt()
        # A zero input stays zero even with eps = 0, or one that is zero in float32. No eps bounds the derivative there,
        # which has no direction to go: it counts as zero.
        positive = q > 0
        base = torch.where(positive, q + max(self.eps, tiny), 1)
        return torch.where(positive, q / base, 0), torch.where(positive, base.rsqrt(), 0)

    def _finite(self, width: int, outputs: int) -> nn.Module:
        del width, outputs
        return FiniteFunction(partial(channel_norm, eps=self.eps), "norm over channels")

    def _own_spec(self) -> Spec:
        return {"op": "layer_norm", "eps": self.eps}
