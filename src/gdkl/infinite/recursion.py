"""The engine that sends whole states through a network, tile by tile: it knows every layer and both kinds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from gdkl.infinite.gram import Work
from gdkl.infinite.state import State
from gdkl.numerics import OptionError, chunk_slices

if TYPE_CHECKING:
    from gdkl.infinite.network import InfiniteNetwork

#: Which kernel: the prior covariance of the network, or the kernel of its training by gradient flow.
Kind: TypeAlias = Literal["nngp", "ntk"]


def known_kind(kind: Kind) -> Kind:
    """A kind of kernel, refused if there is none of that name.

    Raises:
        OptionError: If the kind is not known.

    Example:
        >>> known_kind("ntk")
        'ntk'
    """
    if kind not in get_args(Kind):
        raise OptionError(f"kind={kind!r} is not known: use 'nngp' or 'ntk'.")
    return kind


def read_out(state: State, kind: Kind) -> Tensor:
    """The kernel asked for, out of the last state.

    Example:
        >>> one = torch.ones(1)
        >>> read_out(State(one, one, torch.zeros(1, 1)), "nngp")
        tensor([[1.]])
    """
    if kind == "nngp":
        return state.covariance()
    if state.ntk is None:
        raise RuntimeError("the state carries no NTK although it was asked for")
    return state.ntk


def cast(state: State, dtype: torch.dtype) -> State:
    """The state in another precision.

    Example:
        >>> one = torch.ones(1)
        >>> cast(State(one, one, torch.zeros(1, 1)), torch.float64).t.dtype
        torch.float64
    """
    return state.map_pairs(lambda array: array.to(dtype), q1=state.q1.to(dtype), q2=state.q2.to(dtype))


@dataclass(frozen=True)
class Recursion:
    """Tiles of a Gram matrix by the general recursion.

    Attributes:
        net: The network.
        x1: First set of inputs.
        x2: Second set of inputs.
        kind: Which kernel.
    """

    net: InfiniteNetwork
    x1: Tensor
    x2: Tensor
    kind: Kind

    def hands(self, work: Work) -> tuple[int, int]:
        """Each core takes tiles of its own."""
        return work.jobs(self.x1.device), 1

    def sides(self, work: Work) -> tuple[int, int]:
        """Rows and columns of a tile."""
        side = self.net._side(self.x1, work)
        return side, side

    def rows_at_a_time(self, work: Work) -> int:
        """All of them: tiles share nothing."""
        del work
        return max(1, self.x1.shape[0], self.x2.shape[0])

    def diagonal(self, work: Work) -> Tensor:
        """The diagonal of the matrix of the first set with itself."""
        rows = self.net._side(self.x1, work) ** 2
        parts = [self.net._diagonal(self.x1[part], self.kind) for part in chunk_slices(self.x1.shape[0], rows)]
        return torch.cat(parts) if parts else self.x1.new_zeros(0)

    def block(self, rows: slice, columns: slice) -> Recursion:
        """A part of the matrix."""
        return replace(self, x1=self.x1[rows], x2=self.x2[columns])

    def tile(self, rows: slice, columns: slice) -> Tensor:
        """The covariances of some rows with some columns."""
        return read_out(self.net._run(self.x1[rows], self.x2[columns], self.kind), self.kind)

    def take_back(self, tile: Tensor) -> None:
        """Nothing: tiles are made anew."""
        del tile
