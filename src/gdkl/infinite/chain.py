"""Dense networks in closed form: the NNGP of rows and its derivative by the rows.

An activation with squared weights o and e of its odd and its even part takes k to D·k + s·S with s = √(q1·q2),
cos θ = k/s, D = o + e − (2e/π)·θ and S = (2e/π)·sin θ, and q to (o + e)·q. Its derivatives are short, as those of θ
and sin θ cancel: D by k, and (S/2)·√(q2/q1) by q1. Nothing is divided by sin θ, so identical rows need no care.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.piecewise import ABReLU
from gdkl.infinite.program import Activate, Affine
from gdkl.infinite.waves import RBF

#: From the derivative of a number by a Gram matrix ``(n, n)``, symmetric, to that by the rows ``(n, d)``.
Pullback: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class DenseChain:
    """Activations, each with the linear layer behind it: (w·o, w·e, b). The first is the identity of the rows."""

    stages: tuple[tuple[float, float, float], ...]

    @classmethod
    def of(cls, network: InfiniteNetwork) -> DenseChain | None:
        """The chain that a network is; None for a network with other layers or activations."""
        stages = [(1.0, 0.0, 0.0)]
        for op in network.program().ops:
            if isinstance(op, Affine):
                w, (odd, even, b) = float(op.w), stages[-1]
                stages[-1] = (w * odd, w * even, w * b + float(op.b))
            elif isinstance(op, Activate) and isinstance(op.function, ABReLU):
                slopes = op.function.a, op.function.b
                stages.append(((sum(slopes) / 2) ** 2, ((slopes[1] - slopes[0]) / 2) ** 2, 0.0))
            else:
                return None
        return cls(tuple(stages))

    @torch.no_grad()
    def gram(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """The NNGP Gram matrix ``(n, n)`` of rows ``(n, d)``, and what takes a derivative by it to one by the rows.

        Example:
            >>> from gdkl import infinite
            >>> chain = DenseChain.of(infinite.Linear(weight_var=3.0))
            >>> K, pullback = chain.gram(torch.tensor([[2.0]]))
            >>> K, pullback(torch.ones(1, 1))
            (tensor([[12.]]), tensor([[12.]]))
        """
        w, _, b = self.stages[0]
        k = (x @ x.mT).mul_(w / x.shape[-1]).add_(b)
        tape: list[tuple[float, Tensor, Tensor, Tensor]] = []
        for odd, even, bias in self.stages[1:]:
            q = k.diagonal().clone()
            root = q.sqrt()
            # A row of variance zero has no direction: covariances and derivatives there count as zero.
            inverse = torch.where(q > 0, root.reciprocal(), 0)
            c = (k * inverse.unsqueeze(-1)).mul_(inverse).clamp_(-1, 1)
            D = c.acos().mul_(-2 * even / math.pi).add_(odd + even)
            # sin θ from 1 − c and 1 + c, without the digits that 1 − c² loses; its factor is that of the roots.
            S = (1 - c).mul_(c.add_(1)).sqrt_().mul_(root.unsqueeze(-1))
            weighted = root * (2 * even / math.pi)
            k.mul_(D).addcmul_(S, weighted).add_(bias)
            tape.append((odd + even, D, S, torch.stack([weighted, inverse.square()])))

        def pullback(G: Tensor) -> Tensor:
            by_k, by_q = G.clone(), G.new_zeros(len(G))
            for slope, D, S, (weighted, over) in reversed(tape):
                # Each pair counts twice, S/2 from either side.
                by_q = slope * by_q + over * ((by_k * S) @ weighted)
                by_k.mul_(D)
            by_k.diagonal().add_(by_q)
            return (by_k @ x).mul_(2 * w / x.shape[-1])

        return k, pullback


@dataclass(frozen=True)
class RBFLayer:
    """One layer of `RBF` units, exp(−gamma·w·|x − x′|² / d): the Gaussian kernel.

    Example:
        >>> from gdkl import infinite
        >>> layer = RBFLayer.of(infinite.Sequential(infinite.Linear(1.0), infinite.RBF(0.5)))
        >>> layer.gram(torch.tensor([[0.0], [1.0]]))[0]
        tensor([[1.0000, 0.6065],
                [0.6065, 1.0000]])
    """

    rate: float

    @classmethod
    def of(cls, network: InfiniteNetwork) -> RBFLayer | None:
        """The layer that a network is; None for any other network."""
        match network.program().ops:
            case (Affine() as first, Activate(function=RBF() as function)):
                return cls(function.gamma * float(first.w))
            case _:
                return None

    @torch.no_grad()
    def gram(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """As `DenseChain.gram`."""
        rate = self.rate / x.shape[-1]
        squares = x.square().sum(dim=-1)
        K = (x @ x.mT).mul_(2).sub_(squares).sub_(squares.unsqueeze(-1)).clamp_(max=0)
        K.fill_diagonal_(0).mul_(rate).exp_()

        def pullback(G: Tensor) -> Tensor:
            # Each pair counts twice.
            P = G * K
            return (P @ x - P.sum(dim=-1, keepdim=True) * x).mul_(4 * rate)

        return K, pullback
