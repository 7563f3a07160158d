"""The choice of lanes: how many work on a pair, in what grid, and how large their patches are for each size of map."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from gdkl.infinite.machine import GROUPS, SHARED_BYTES, SINGLE, WARP, Layout, grids
from gdkl.infinite.program import Add, Affine, Apply, Convolve, Op, Save, Sum, Swap, UnsupportedError
from gdkl.infinite.spatial import Window

#: Registers that the maps of a lane may take: half of what 16 warps per multiprocessor leave each thread.
MAP_REGISTERS = 72
#: Height and width of a map; nothing for a single number.
Size: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """An operation and the layouts of the map before and behind it."""

    op: Op
    source: Layout
    target: Layout

    @property
    def pads(self) -> tuple[int, int]:
        """Rows and columns of padding before the image."""
        pads = self._window.pads(*self.source.size)
        return pads[0][0], pads[1][0]

    @property
    def circular(self) -> bool:
        """Whether the padding of a convolution wraps around."""
        window = self._window
        return window.mode == "circular" and window.pads(*self.source.size) != ((0, 0), (0, 0))

    @property
    def aligned(self) -> bool:
        """Whether windows of a lane's results begin at its own pixels; if not, the map goes through shared memory."""
        # Padding can wrap around only at the edge of the grid.
        return all(
            self.source.lengths(axis)[2] == self._window.stride[axis] * self.target.lengths(axis)[2]
            and (not self.circular or self.source.exact(axis))
            for axis in (0, 1)
        )

    @property
    def _window(self) -> Window:
        if not isinstance(self.op, Convolve):
            raise TypeError("only convolutions have windows")
        return self.op.window


@lru_cache(maxsize=64)
def place(ops: tuple[Op, ...], shape: tuple[int, int, int], *, double: bool) -> tuple[int, Layout, tuple[Step, ...]]:
    """Lanes that work on a pair, the layout of the inputs, and the steps, chosen by counting instructions."""
    ends, depth = _sizes(ops, shape[1:])
    most = MAP_REGISTERS // ((2 if double else 1) * (1 + depth))
    sizes = list(dict.fromkeys(size for pair in ends for size in pair if size))
    largest = max(h * w for h, w in sizes)
    best: tuple[float, int, Layout, tuple[Step, ...]] | None = None
    for group in GROUPS:
        if largest > group * most:
            continue
        if best is not None and group > 4 * WARP and group > 2 * best[1]:
            # More lanes than needed only cost more.
            break
        for rows, columns in grids(group):
            if rows > max(h for h, _ in sizes) or columns > 2 * max(w for _, w in sizes):
                continue
            for chosen in _choices(ops, ends, sizes, rows, columns):
                if any(layout.pixels > most for layout in chosen.values()):
                    continue
                steps = tuple(
                    Step(op, chosen.get(source, SINGLE), chosen.get(target, SINGLE))
                    for op, (source, target) in zip(ops, ends, strict=True)
                )
                start = chosen[shape[1:]]
                cost = group * (3 * shape[0] * start.pixels + sum(_cost(step, group, double) for step in steps))
                if best is None or cost < best[0]:
                    best = (cost, group, start, steps)
    if best is None or best[0] == math.inf:
        raise UnsupportedError(f"maps of {largest} pixels do not fit the registers and the shared memory of a block")
    return best[1:]


def _sizes(ops: Sequence[Op], size: Size) -> tuple[list[tuple[Size, Size]], int]:
    """The sizes of the map before and behind each operation, and the most maps on the stack."""
    ends: list[tuple[Size, Size]] = []
    stack: list[Size] = []
    depth = 0
    for op in ops:
        before = size
        if isinstance(op, Convolve):
            size = op.window.outputs(*size)
        elif isinstance(op, Sum):
            size = ()
        elif isinstance(op, Save):
            stack.append(size)
            depth = max(depth, len(stack))
        elif isinstance(op, Swap):
            size, stack[-1] = stack[-1], size
        elif isinstance(op, Add):
            stack.pop()
        ends.append((before, size))
    return ends, depth


def _choices(
    ops: Sequence[Op], ends: Sequence[tuple[Size, Size]], sizes: Sequence[Size], rows: int, columns: int
) -> Iterator[dict[Size, Layout]]:
    """Layouts of all sizes on one grid: patches as small as possible, or such that strides divide them."""
    ways: list[list[dict[Size, int]]] = []
    for axis, lanes in ((0, rows), (1, columns)):
        least = {size: -(-size[axis] // lanes) for size in sizes}
        divided = _divided(ops, ends, least, axis)
        ways.append([least] if divided is None or divided == least else [least, divided])
    for heights in ways[0]:
        for widths in ways[1]:
            yield {(h, w): Layout(h, w, rows, columns, heights[h, w], widths[h, w]) for h, w in sizes}


def _divided(
    ops: Sequence[Op], ends: Sequence[tuple[Size, Size]], least: dict[Size, int], axis: int
) -> dict[Size, int] | None:
    """The smallest patches of which each is a stride's multiple of the next; None if there are none."""
    first = next(iter(least))
    parts: dict[Size, Fraction] = {first: Fraction(1)}
    for op, (source, target) in zip(ops, ends, strict=True):
        if isinstance(op, Convolve):
            part = parts.get(source)
            if part is None or parts.setdefault(target, part / op.window.stride[axis]) != part / op.window.stride[axis]:
                return None
    # Patches are whole numbers that cover the image.
    base = math.lcm(*(part.denominator for part in parts.values()))
    needed = max(-(-least[size] * part.denominator // part.numerator) for size, part in parts.items())
    start = -(-needed // base) * base
    return {size: int(start * part) for size, part in parts.items()}


def _cost(step: Step, group: int, double: bool) -> float:
    """Instructions of one lane, roughly."""
    op, pixels = step.op, step.source.pixels
    if isinstance(op, Apply):
        return (100 if double else 14) * pixels
    if isinstance(op, Convolve):
        return _convolution_cost(step, op.window, group)
    return pixels if isinstance(op, Affine | Add | Sum) else 0


def _convolution_cost(step: Step, window: Window, group: int) -> float:
    source, target, size = step.source, step.target, window.size
    if not step.aligned:
        # The map with its frame goes through shared memory, in double precision for the exact variance.
        framed = (source.height + size[0]) * (source.width + size[1])
        if 8 * framed * max(1, WARP // group) > SHARED_BYTES:
            return math.inf
        return 60 + 3 * source.pixels + 4 * size[0] * size[1] * target.pixels
    # Neighbours' pixels cost a shuffle each, or a trip through shared memory beyond a warp.
    each = 2.0 if group <= WARP else 6.0
    beside = [size[axis] - window.stride[axis] for axis in (0, 1)]
    sums = (size[1] - 1) * source.patch_height * target.patch_width + (size[0] - 1) * target.pixels
    edges = max(beside[1], 0) * source.patch_height + max(beside[0], 0) * target.patch_width
    return 0.75 * sums + each * edges + target.pixels + (40 if group > WARP else 0)
