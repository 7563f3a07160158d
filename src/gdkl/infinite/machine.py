"""What formulas and programs are written for: arithmetic, and machines whose lanes each hold one number at a time.

Formulas (`formulas`) need the arithmetic alone; a CPU records them as torch calls (`tape`). Whole programs on a GPU
need lanes as well: the same walk (`fused.interpret`) drives the writer of CUDA text (`fused.cuda`) and the emulator of
the tests. What the one computes is what the other writes, operation by operation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

#: Lanes that may share a pair: parts of a warp, a warp, or several warps of one block; more would leave each of them
#: too few registers.
GROUPS = (4, 8, 16, 32, 64, 128, 256, 512)
#: Lanes of a warp.
WARP = 32
#: Shared memory that a block can have without asking for more.
SHARED_BYTES = 48 * 1024
#: One number on every lane: an array, a name in a text, a register of a tape.
Value: TypeAlias = Any


@dataclass(frozen=True)
class Constant:
    """A number of a compiled program that is data and not part of its text, by its place among the constants."""

    index: int


class Arithmetic(ABC):
    """The operations that formulas are made of, by default those of Python's operators."""

    @abstractmethod
    def number(self, value: float | Constant) -> Value:
        """A number of the program."""

    def add(self, a: Value, b: Value) -> Value:
        """The sum a + b."""
        return a + b

    def subtract(self, a: Value, b: Value) -> Value:
        """The difference a − b."""
        return a - b

    def multiply(self, a: Value, b: Value) -> Value:
        """The product a·b."""
        return a * b

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a·b + c, with one rounding if the machine can."""
        return self.add(self.multiply(a, b), c)

    @abstractmethod
    def function(self, name: str, *arguments: Value) -> Value:
        """A function by its name in C, such as ``fabs``, ``fmax``, ``asin`` or ``expm1``; ``divide`` is a / b."""

    def quick_root(self, a: Value) -> Value:
        """√a to a few units in the last place."""
        return self.function("sqrt", a)

    @abstractmethod
    def clipped_ratio(self, a: Value, b: Value) -> Value:
        """A / b to a few units in the last place, clipped to 0 … 1, and 0 for 0 / 0."""

    @abstractmethod
    def reciprocal_root(self, a: Value) -> Value:
        """1/√a, and 0 for a ≤ 0."""

    def clip(self, a: Value, low: float, high: float) -> Value:
        """A value clipped to a range."""
        return self.function("fmax", self.function("fmin", a, self.number(high)), self.number(low))


@dataclass(frozen=True)
class Layout:
    """A map of ``height`` × ``width`` pixels on a grid of ``rows`` × ``columns`` lanes that work on one pair of images.

    Each lane holds a patch of neighbouring pixels in registers: sums over a window need their neighbours' pixels only
    along the patch's edge. A stride that divides the patch leaves every lane a smaller patch of the smaller image.
    Lane (i, j) holds pixels i·patch_height … and j·patch_width …; those outside the image hold anything finite.
    A height of zero stands for a single number that every lane holds.
    """

    height: int
    width: int
    rows: int
    columns: int
    patch_height: int
    patch_width: int

    @property
    def pixels(self) -> int:
        """Pixels of a lane."""
        return self.patch_height * self.patch_width

    @property
    def single(self) -> bool:
        """Whether it is one number and not a map."""
        return self.height == 0

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width

    def lengths(self, axis: int) -> tuple[int, int, int]:
        """Pixels, lanes and pixels of a lane along an axis."""
        if axis == 0:
            return self.height, self.rows, self.patch_height
        return self.width, self.columns, self.patch_width

    def inside(self, axis: int, offset: int) -> tuple[bool, ...]:
        """Whether the pixel at an offset from a lane's first one lies in the image, for all lanes along an axis."""
        length, lanes, patch = self.lengths(axis)
        return tuple(0 <= lane * patch + offset < length for lane in range(lanes))

    def exact(self, axis: int) -> bool:
        """Whether the lanes' patches cover the image and nothing else."""
        length, lanes, patch = self.lengths(axis)
        return lanes * patch == length


#: One number that every lane of a group holds.
SINGLE = Layout(0, 0, 1, 1, 1, 1)


def grids(group: int) -> Iterator[tuple[int, int]]:
    """All grids of rows × columns that a group of lanes can form, a few lanes left over included."""
    for rows in range(1, min(group, 64) + 1):
        yield rows, group // rows


class Machine(Arithmetic):
    """Arithmetic on lanes that share the map of a pair of inputs."""

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

    @abstractmethod
    def products(self, channels: int, layout: Layout) -> list[Value]:
        """Sums over channels of products of the two inputs, pixel by pixel."""

    @property
    @abstractmethod
    def writes_factors(self) -> bool:
        """Whether it runs on the variance of one input, to write its factors, or on pairs, to read them."""

    @abstractmethod
    def read_factors(self, layout: Layout, planes: int) -> Callable[[int], tuple[Sequence[Value], Sequence[Value]]]:
        """The next factors of either input, pixel by pixel; all pixels are asked for, in order."""

    @abstractmethod
    def write_factors(self, layout: Layout, planes: int) -> Callable[[int, Sequence[Value]], None]:
        """What takes the next factors of the input, pixel by pixel; all pixels are given, in order."""
