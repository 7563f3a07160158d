"""What a program runs on: a machine with lanes, of which each holds one number at a time.

The same walk over a program (`interpret`) drives two machines: one computes with NumPy arrays (`emulate`), the
other writes CUDA text (`cuda`). What the one computes is what the other writes, operation by operation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gdkl.infinite.fused.layout import Layout

#: One number on every lane: an array for the emulator, a name for the writer of text.
Value: TypeAlias = Any


class Machine(ABC):
    """The operations that programs are made of."""

    # Arithmetic.

    @abstractmethod
    def number(self, value: float) -> Value:
        """A number that is part of the program."""

    @abstractmethod
    def constant(self, index: int) -> Value:
        """One of the program's constants, which are data and not part of its text."""

    @abstractmethod
    def add(self, a: Value, b: Value) -> Value:
        """The sum a + b."""

    @abstractmethod
    def subtract(self, a: Value, b: Value) -> Value:
        """The difference a − b."""

    @abstractmethod
    def multiply(self, a: Value, b: Value) -> Value:
        """The product a·b."""

    @abstractmethod
    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a·b + c with one rounding, if the machine has it."""

    @abstractmethod
    def clipped_product(self, a: Value, b: Value) -> Value:
        """a·b cut to 0 … 1, and 0 for what is no number."""

    @abstractmethod
    def quick(self, function: str, a: Value) -> Value:
        """``sqrt`` or ``rcp`` (1/a) to a few units in the last place, with rcp(0) infinite."""

    @abstractmethod
    def function(self, name: str, *arguments: Value) -> Value:
        """A function by its name in C, such as ``fabs``, ``fmax``, ``asin`` or ``expm1``; ``divide`` is a / b."""

    @abstractmethod
    def reciprocal_root(self, a: Value) -> Value:
        """1/√a, and 0 for a ≤ 0."""

    # Lanes.

    @abstractmethod
    def mask(self, layout: Layout, axis: int, lanes: tuple[bool, ...]) -> Value:
        """One on those lanes along an axis of the grid that are true, zero on the others."""

    @abstractmethod
    def exchange(self, values: Sequence[Value], layout: Layout, axis: int, step: int, circular: bool) -> list[Value]:
        """What the lane so many steps further along an axis holds; anything finite beyond the grid."""

    @abstractmethod
    def reread(
        self,
        values: Sequence[Value],
        source: Layout,
        target: Layout,
        geometry: tuple[tuple[int, int], tuple[int, int], tuple[int, int]],
        circular: bool,
    ) -> list[Value]:
        """Sums over windows (size, stride, pads) of a map that is spread anew; zeros beyond the image."""

    @abstractmethod
    def total(self, value: Value, layout: Layout) -> Value:
        """The sum over all lanes of the grid, on every lane, always in the same order."""

    @abstractmethod
    def repeat(self, count: int, values: Sequence[Value], body: Callable[[list[Value]], list[Value]]) -> list[Value]:
        """Values that have gone through a body several times."""

    # Inputs and notes.

    @abstractmethod
    def products(self, channels: int, layout: Layout) -> list[Value]:
        """Sums over channels of products of the two inputs, pixel by pixel."""

    @property
    @abstractmethod
    def makes_notes(self) -> bool:
        """Whether the program runs on the variance of one input, to make its notes, or on pairs, to read them."""

    @abstractmethod
    def read_notes(self, layout: Layout, planes: int) -> Callable[[int], tuple[Sequence[Value], Sequence[Value]]]:
        """The next notes of either input, pixel by pixel; all pixels are asked for, in order."""

    @abstractmethod
    def write_notes(self, layout: Layout, planes: int) -> Callable[[int, Sequence[Value]], None]:
        """What takes the next notes of the input, pixel by pixel; all pixels are given, in order."""
