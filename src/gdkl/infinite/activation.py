"""What every activation shares: how a state passes through a function applied to each unit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from gdkl.infinite.finite import FiniteFunction
from gdkl.infinite.formulas import ArcCosine, Formula
from gdkl.infinite.network import InfiniteNetwork, Spec
from gdkl.infinite.program import Activate, Op, UnsupportedError
from gdkl.infinite.state import State


@dataclass(frozen=True)
class Pair:
    """What an activation may know of each pair: variances, t = 1 − c and u = 1 + c, shaped to broadcast."""

    q1: Tensor
    q2: Tensor
    t: Tensor
    u: Tensor


class Activation(InfiniteNetwork):
    """A function φ applied to each unit: K ← E[φ(u)φ(v)], T ← T·E[φ'(u)φ'(v)].

    A subclass says what becomes of a variance, of the deficit (``deficit`` or ``deficits``), and what E[φ'φ'] is.
    """

    #: The name in a spec, and the attributes that are its other entries.
    _name: ClassVar[str]
    _entries: ClassVar[tuple[str, ...]] = ()
    #: Whether the formulas lose digits in float32 and are worth float64 inside.
    _wide = True
    #: Whether φ(−x) = −φ(x).
    _odd = False

    @abstractmethod
    def variance(self, q: Tensor) -> Tensor:
        """E[φ(u)²] for u ~ N(0, q)."""

    def deficit(self, pair: Pair) -> Tensor:
        """1 − c' behind the activation, without cancellation for c near 1 (near −1 too if φ is even)."""
        return self.deficits(pair)[0]

    def deficits(self, pair: Pair) -> tuple[Tensor, Tensor]:
        """1 − c' and 1 + c'; odd in c for an odd φ, so that antipodal inputs are as exact as parallel ones."""
        if not self._odd:
            t = self.deficit(pair)
            return t, 2 - t
        forward = pair.t <= 1
        t, u = torch.where(forward, pair.t, pair.u), torch.where(forward, pair.u, pair.t)
        m = self.deficit(Pair(pair.q1, pair.q2, t, u))
        return torch.where(forward, m, 2 - m), torch.where(forward, 2 - m, m)

    @abstractmethod
    def slope(self, pair: Pair) -> Tensor:
        """E[φ'(u)φ'(v)] of each pair."""

    @abstractmethod
    def function(self, x: Tensor) -> Tensor:
        """φ itself."""

    def _finite(self, width: int, outputs: int) -> nn.Module:
        return FiniteFunction(self.function, repr(self))

    @property
    def two_sided(self) -> bool:
        """Whether 1 + c must be carried: squashing functions turn a tiny 1 + c of large inputs into one that shows."""
        return True

    def formula(self, arc_cosine: Callable[[float], ArcCosine]) -> tuple[Formula | None, float]:
        """E[φ(u)φ(v)] as a factor times a formula of the covariance alone (see `program.Function`)."""
        del arc_cosine
        formula = self._formula()
        if formula is None:
            raise UnsupportedError(f"{type(self).__name__} has no formula of the covariance alone")
        return formula, 1.0

    def _formula(self) -> Formula | None:
        return None

    def _ops(self) -> Iterator[Op]:
        yield Activate(self)

    def _own_spec(self) -> Spec:
        return {"op": "act", "name": self._name, **{name: getattr(self, name) for name in self._entries}}

    def propagate(self, state: State) -> State:
        """The precise state behind the activation."""
        dtype = state.t.dtype
        state = state.with_gradient()
        q1, q2 = state.variances(self._variance)
        pair = Pair(state.left(state.q1), state.right(state.q2), state.t, state.other_side())
        if self._wide:
            pair = Pair(*(array.double() for array in (pair.q1, pair.q2, pair.t, pair.u)))
        t, u = self.deficits(pair)
        ntk = None if state.ntk is None else state.ntk * self.slope(pair).to(dtype)
        new = replace(state, q1=q1, q2=q2, t=t.to(dtype), u=None if state.u is None else u.to(dtype), k=None, ntk=ntk)
        if state.k is None:
            return new
        k = new.covariance()
        # Where a variance is zero the correlation carries no gradient, though E[φ(u)φ(v)] has: E[φ'φ'] dk.
        zero = (pair.q1 == 0) | (pair.q2 == 0)
        if bool(zero.any()):
            still = Pair(*(array.detach() for array in (pair.q1, pair.q2, pair.t, pair.u)))
            slope = torch.where(zero, self.slope(still).to(dtype), 0)
            k = k + slope * (state.k - state.k.detach())
        return replace(new, k=k)

    def _variance(self, q: Tensor) -> Tensor:
        return self.variance(q.double()).to(q.dtype) if self._wide else self.variance(q)
