"""The intermediate form: what happens to one pair of inputs, as a list of operations on one map.

The covariance of a pair is a map of one number a pixel, spread over lanes by a `Layout`. Operations change that
map in place. Everything that belongs to one input alone, such as the square root of its variance before an
activation, is a *note*: computed once an input, read for every pair, in the order of the operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gdkl.infinite.fused.activations import Formula
from gdkl.infinite.fused.layout import Layout


class UnsupportedError(Exception):
    """A network, an input or a device that the compiler does not take; the message says which."""


@dataclass(frozen=True)
class Start:
    """The sum of products of the two inputs over channels."""

    channels: int
    layout: Layout


@dataclass(frozen=True)
class Convolve:
    """Sums over a window, times a constant, plus a constant.

    Attributes:
        source: Layout before.
        target: Layout behind.
        size: Height and width of the window.
        stride: Steps between windows.
        pads: Rows and columns of padding before the image.
        circular: Whether the padding wraps around.
        aligned: Whether each lane's results lie where its own pixels did, so that only edges are exchanged; if
            not, the whole map goes through shared memory.
        w: Number of the factor among the constants.
        b: Number of the term; None for none.
    """

    source: Layout
    target: Layout
    size: tuple[int, int]
    stride: tuple[int, int]
    pads: tuple[int, int]
    circular: bool
    aligned: bool
    w: int
    b: int | None


@dataclass(frozen=True)
class Affine:
    """w·K + b; either may be missing."""

    layout: Layout
    w: int | None
    b: int | None


@dataclass(frozen=True)
class Activate:
    """An element-wise function of the covariance and of the notes of both inputs."""

    layout: Layout
    formula: Formula


@dataclass(frozen=True)
class Save:
    """Keep a copy of the map in a slot."""

    slot: int


@dataclass(frozen=True)
class Swap:
    """Exchange the map with the one in a slot."""

    slot: int
    layout: Layout


@dataclass(frozen=True)
class Add:
    """Add the map of a slot, which is free behind that."""

    slot: int
    layout: Layout


@dataclass(frozen=True)
class Sum:
    """The sum over all pixels."""

    layout: Layout


@dataclass(frozen=True)
class Repeat:
    """Some operations several times over, with constants of their own but notes that go on."""

    count: int
    body: tuple[Op, ...]


Op: TypeAlias = Start | Convolve | Affine | Activate | Save | Swap | Add | Sum | Repeat


@dataclass(frozen=True)
class Program:
    """A network, compiled for one size of inputs.

    Attributes:
        ops: What happens to a pair.
        constants: The numbers that operations refer to: variances of weights and biases.
        double: Whether the arithmetic is in double precision.
        group: Lanes that work on a pair; 0 for vectors, where it is one thread an entry of the matrix.
        slots: How many maps are saved at a time, at most.
    """

    ops: tuple[Op, ...]
    constants: tuple[float, ...]
    double: bool
    group: int
    slots: int

    @property
    def notes(self) -> int:
        """Numbers that an input notes for its pairs, its own pixels included."""
        return sum(note_numbers(op, self.group) for op in flat(self.ops))


def plane(layout: Layout, group: int) -> int:
    """Numbers of one note of a whole map.

    Example:
        >>> plane(Layout(8, 8, 2, 2, 4, 4), 4)
        64
    """
    if group == 0:
        return 1
    # A single number takes four places, so that what follows stays aligned for wide loads.
    return 4 if layout.single else layout.pixels * group


def note_numbers(op: Op, group: int) -> int:
    """Numbers that one operation notes."""
    if isinstance(op, Start):
        return op.channels * plane(op.layout, group) if group else 0
    if isinstance(op, Activate):
        return op.formula.planes * plane(op.layout, group)
    return 0


def flat(ops: Sequence[Op]) -> Iterator[Op]:
    """All operations in order, repeated ones as often as they happen."""
    for op in ops:
        if isinstance(op, Repeat):
            for _ in range(op.count):
                yield from flat(op.body)
        else:
            yield op


def rolled(ops: Sequence[Op]) -> tuple[Op, ...]:
    """The same operations with the longest repetitions as loops, so that a deep network stays a short text.

    Example:
        >>> a, b = Save(0), Save(1)
        >>> rolled([a, b, a, b, a]) == (Repeat(2, (a, b)), a)
        True
    """
    ops, best = list(ops), (0, 0, 0, 0)
    for start in range(len(ops)):
        for length in range(1, (len(ops) - start) // 2 + 1):
            body, count = ops[start : start + length], 1
            while ops[start + count * length : start + (count + 1) * length] == body:
                count += 1
            # The most operations saved; of equals, the one that starts first and is shortest.
            if (count - 1) * length > best[0]:
                best = ((count - 1) * length, start, length, count)
    saved, start, length, count = best
    if saved == 0:
        return tuple(ops)
    body = tuple(ops[start : start + length])
    return (*rolled(ops[:start]), Repeat(count, body), *rolled(ops[start + count * length :]))
