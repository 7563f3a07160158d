"""Dense networks in closed form: the NNGP of rows and its derivative by the rows.

An activation with squared weights o and e of its odd and its even part takes k to D·k + s·S with s = √(q1·q2),
cos θ = k/s, D = o + e − (2e/π)·θ and S = (2e/π)·sin θ, and q to (o + e)·q. Its derivatives are short, as those of θ
and sin θ cancel: D by k, and (S/2)·√(q2/q1) by q1. Nothing is divided by sin θ, so identical rows need no care.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.piecewise import ABReLU
from gdkl.infinite.program import Activate, Affine
from gdkl.infinite.waves import RBF
from gdkl.numerics import Scratch, chunk_slices

#: From the derivative of a number by a Gram matrix ``(n, n)``, symmetric, to that by the rows ``(n, d)``.
Pullback: TypeAlias = Callable[[Tensor], Tensor]

#: Rows at a time: elementwise operations on so many rows of up to 1000 columns stay in a core's cache.
_BLOCK = 64


class _Scale(NamedTuple):
    """What an activation sees of the variances: (o + e), roots, their inverses, and (2e/π) times the roots."""

    slope: float
    root: Tensor
    inverse: Tensor
    weighted: Tensor


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
    def gram(self, x: Tensor, scratch: Scratch | None = None) -> tuple[Tensor, Pullback]:
        """The NNGP Gram matrix ``(n, n)`` of rows ``(n, d)``, and what takes a derivative by it to one by the rows.

        Both are in the memory of ``scratch``, if there is one: the next call with it overwrites them.

        Example:
            >>> from gdkl import infinite
            >>> chain = DenseChain.of(infinite.Linear(weight_var=3.0))
            >>> K, pullback = chain.gram(torch.tensor([[2.0]]))
            >>> K, pullback(torch.ones(1, 1))
            (tensor([[12.]]), tensor([[12.]]))
        """
        w, _, b = self.stages[0]
        n, take = len(x), scratch or Scratch()
        k = torch.mm(x, x.mT, out=take("K", x, n, n).mT).mul_(w / x.shape[-1]).add_(b)
        scales = self._scales(k.diagonal().clone())
        saved = [(take(f"D{stage}", x, n, n).mT, take(f"sine{stage}", x, n, n).mT) for stage in range(len(scales))]
        blocks = list(chunk_slices(n, _BLOCK))
        # Rows of a block with those before them and themselves; the rest is the mirror image.
        for rows in blocks:
            self._block(k[rows, : rows.stop], rows, scales, saved)
        for rows in blocks[1:]:
            k[: rows.start, rows] = k[rows, : rows.start].mT

        def pullback(G: Tensor) -> Tensor:
            by_rows, sums = torch.zeros_like(x), x.new_zeros(len(scales), n)
            stages = list(zip(sums, scales, saved, strict=True))
            for rows in blocks:
                known, first = (rows, slice(rows.stop)), rows.start
                by_k = G[known].clone()
                for total, scale, (D, sine) in reversed(stages):
                    # Each pair counts twice, half of S from either side.
                    by_S = by_k * sine[known]
                    total[rows] += by_S @ scale.weighted[: rows.stop]
                    total[:first] += scale.weighted[rows] @ by_S[:, :first]
                    by_k.mul_(D[known])
                by_rows[rows] += by_k @ x[: rows.stop]
                by_rows[:first] += by_k[:, :first].mT @ x[rows]
            by_q = x.new_zeros(n)
            for total, scale in reversed(list(zip(sums, scales, strict=True))):
                by_q = scale.slope * by_q + scale.inverse.square() * scale.root * total
            return by_rows.add_(by_q.unsqueeze(-1) * x).mul_(2 * w / x.shape[-1])

        return k, pullback

    @torch.no_grad()
    def cross(self, x: Tensor, z: Tensor) -> tuple[Tensor, Pullback]:
        """Covariances ``(m, n)`` of rows with others, and what takes a derivative by them to one by the first rows.

        Example:
            >>> from gdkl import infinite
            >>> K, pullback = DenseChain.of(infinite.Linear(weight_var=3.0)).cross(torch.eye(1), torch.tensor([[2.0]]))
            >>> K, pullback(torch.ones(1, 1))
            (tensor([[6.]]), tensor([[6.]]))
        """
        w, _, b = self.stages[0]
        d = x.shape[-1]
        k = (x @ z.mT).mul_(w / d).add_(b)
        own, other = (self._scales(rows.square().sum(dim=-1) * (w / d) + b) for rows in (x, z))
        saved: list[tuple[Tensor, Tensor]] = []
        for (_, even, bias), at_x, at_z in zip(self.stages[1:], own, other, strict=True):
            c = (k * at_x.inverse.unsqueeze(-1)).mul_(at_z.inverse).clamp_(-1, 1)
            sine = torch.sub(1, c).mul_(1 + c).sqrt_()
            D = torch.atan2(sine, c).mul_(-2 * even / math.pi).add_(at_x.slope)
            saved.append((D, sine))
            k = (k * D).addcmul_(sine * at_x.root.unsqueeze(-1), at_z.weighted).add_(bias)

        def pullback(G: Tensor) -> Tensor:
            by_k, sums = G, list[Tensor]()
            for (D, sine), at_z in zip(reversed(saved), reversed(other), strict=True):
                sums.append(0.5 * ((by_k * sine) @ at_z.weighted))
                by_k = by_k * D
            by_q = x.new_zeros(len(x))
            for total, at_x in zip(sums, reversed(own), strict=True):
                by_q = at_x.slope * by_q + at_x.inverse.square() * at_x.root * total
            return (by_k @ z + 2 * by_q.unsqueeze(-1) * x).mul_(w / d)

        return k, pullback

    def diagonal(self, x: Tensor) -> Tensor:
        """Variances ``(n,)`` of rows, under autograd."""
        w, _, b = self.stages[0]
        q = x.square().sum(dim=-1) * (w / x.shape[-1]) + b
        for odd, even, bias in self.stages[1:]:
            q = (odd + even) * q + bias
        return q

    def _scales(self, q: Tensor) -> list[_Scale]:
        """What each activation sees of the variances ``(n,)`` of the first layer."""
        scales: list[_Scale] = []
        for odd, even, bias in self.stages[1:]:
            root = q.sqrt()
            # A row of variance zero has no direction: covariances and derivatives there count as zero.
            inverse = torch.where(q > 0, root.reciprocal(), 0)
            scales.append(_Scale(odd + even, root, inverse, root * (2 * even / math.pi)))
            q = (odd + even) * q + bias
        return scales

    def _block(self, k: Tensor, rows: slice, scales: list[_Scale], saved: list[tuple[Tensor, Tensor]]) -> None:
        """Take covariances of some rows with the first ones through all stages in place; save D and sin θ of each."""
        known = (rows, slice(rows.stop))
        for (_, even, bias), scale, stage in zip(self.stages[1:], scales, saved, strict=True):
            c = (k * scale.inverse[rows].unsqueeze(-1)).mul_(scale.inverse[: rows.stop]).clamp_(-1, 1)
            D, sine = (part[known] for part in stage)
            # From 1 − c and 1 + c, without the digits that 1 − c² loses.
            torch.sub(1, c, out=sine).mul_(1 + c).sqrt_()
            torch.atan2(sine, c, out=D).mul_(-2 * even / math.pi).add_(scale.slope)
            k.mul_(D).addcmul_(sine * scale.root[rows].unsqueeze(-1), scale.weighted[: rows.stop]).add_(bias)


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
    def gram(self, x: Tensor, scratch: Scratch | None = None) -> tuple[Tensor, Pullback]:
        """As `DenseChain.gram`."""
        rate = self.rate / x.shape[-1]
        squares = x.square().sum(dim=-1)
        n, take = len(x), scratch or Scratch()
        K = torch.mm(x, x.mT, out=take("K", x, n, n).mT).mul_(2).sub_(squares).sub_(squares.unsqueeze(-1)).clamp_(max=0)
        K.fill_diagonal_(0).mul_(rate).exp_()
        saved = take("saved", x, n, n).copy_(K)

        def pullback(G: Tensor) -> Tensor:
            # Each pair counts twice.
            P = torch.mul(G, saved, out=take("P", x, n, n))
            return (P @ x - P.sum(dim=-1, keepdim=True) * x).mul_(4 * rate)

        return K, pullback

    @torch.no_grad()
    def cross(self, x: Tensor, z: Tensor) -> tuple[Tensor, Pullback]:
        """As `DenseChain.cross`."""
        rate = self.rate / x.shape[-1]
        K = torch.cdist(x, z, compute_mode="donot_use_mm_for_euclid_dist").square_().mul_(-rate).exp_()

        saved = K.clone()

        def pullback(G: Tensor) -> Tensor:
            P = G * saved
            return (P @ z - P.sum(dim=-1, keepdim=True) * x).mul_(2 * rate)

        return K, pullback

    def diagonal(self, x: Tensor) -> Tensor:
        """As `DenseChain.diagonal`."""
        return torch.ones_like(x[..., 0])


def closed_form(network: InfiniteNetwork) -> DenseChain | RBFLayer | None:
    """The network in closed form; None where it has none here.

    Example:
        >>> from gdkl import infinite
        >>> closed_form(infinite.mlp()) is None, closed_form(infinite.mlp(activation="erf")) is None
        (False, True)
    """
    return DenseChain.of(network) or RBFLayer.of(network)
