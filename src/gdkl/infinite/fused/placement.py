"""The choice of lanes: how many work on a pair, in what grid, and how large their patches are for each size of map."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from gdkl.infinite.fused.layout import GROUPS, SHARED_BYTES, WARP, Layout, grids
from gdkl.infinite.fused.program import Activate, Add, Affine, Convolve, Op, Start, Sum, Swap, UnsupportedError

#: Registers that the maps of a lane may take: half of what 16 warps a multiprocessor leave each thread.
MAP_REGISTERS = 72
#: Size of a map of which a layout is wanted.
Size = tuple[int, int]


@lru_cache(maxsize=64)
def place(ops: tuple[Op, ...], *, slots: int, double: bool) -> tuple[int, tuple[Op, ...]]:
    """Choose layouts by counting instructions, and write them into the operations.

    Args:
        ops: Operations whose layouts have sizes alone.
        slots: Maps that are kept beside the current one.
        double: Whether a number takes two registers.

    Returns:
        Lanes that work on a pair, and the operations.

    Raises:
        UnsupportedError: If the largest map does not fit the registers of a block.
    """
    most = MAP_REGISTERS // ((2 if double else 1) * (1 + slots))
    sizes = list(dict.fromkeys(layout.size for op in ops for layout in _layouts(op) if not layout.single))
    largest = max(h * w for h, w in sizes)
    best: tuple[float, int, tuple[Op, ...]] | None = None
    for group in GROUPS:
        if largest > group * most:
            continue
        if best is not None and group > 4 * WARP and group > 2 * best[1]:
            # More lanes than needed only cost more.
            break
        for rows, columns in grids(group):
            if rows > max(h for h, _ in sizes) or columns > 2 * max(w for _, w in sizes):
                continue
            for chosen in _choices(ops, sizes, rows, columns):
                if any(layout.pixels > most for layout in chosen.values()):
                    continue
                placed = tuple(_placed(op, chosen) for op in ops)
                cost = group * sum(_cost(op, group, double) for op in placed)
                if best is None or cost < best[0]:
                    best = (cost, group, placed)
    if best is None or best[0] == math.inf:
        raise UnsupportedError(f"maps of {largest} pixels do not fit the registers and the shared memory of a block")
    return best[1], best[2]


def _layouts(op: Op) -> Iterator[Layout]:
    if isinstance(op, Convolve):
        yield from (op.source, op.target)
    elif isinstance(op, Start | Affine | Activate | Add | Sum | Swap):
        yield op.layout


def _choices(ops: Sequence[Op], sizes: list[Size], rows: int, columns: int) -> Iterator[dict[Size, Layout]]:
    """Layouts of all sizes on one grid: patches as small as possible, or such that strides divide them."""
    ways: list[list[dict[Size, int]]] = []
    for axis, lanes in ((0, rows), (1, columns)):
        least = {size: -(-size[axis] // lanes) for size in sizes}
        divided = _divided(ops, least, axis)
        ways.append([least] if divided is None or divided == least else [least, divided])
    for heights in ways[0]:
        for widths in ways[1]:
            yield {size: Layout(*size, rows, columns, heights[size], widths[size]) for size in sizes}


def _divided(ops: Sequence[Op], least: dict[Size, int], axis: int) -> dict[Size, int] | None:
    """The smallest patches of which each is a stride's multiple of the next; None if there are none."""
    first = next(iter(least))
    parts: dict[Size, Fraction] = {first: Fraction(1)}
    for op in ops:
        if isinstance(op, Convolve):
            part = parts.get(op.source.size)
            if part is None or parts.setdefault(op.target.size, part / op.stride[axis]) != part / op.stride[axis]:
                return None
    # Patches are whole numbers that cover the image.
    base = 1
    for part in parts.values():
        base = base * part.denominator // _common(base, part.denominator)
    needed = max(-(-least[size] * part.denominator // part.numerator) for size, part in parts.items())
    start = -(-needed // base) * base
    return {size: int(start * part) for size, part in parts.items()}


def _common(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


def _placed(op: Op, chosen: dict[Size, Layout]) -> Op:
    def known(layout: Layout) -> Layout:
        return layout if layout.single else chosen[layout.size]

    if isinstance(op, Convolve):
        source, target = known(op.source), known(op.target)
        aligned = all(_aligned(op, source, target, axis) for axis in (0, 1))
        return replace(op, source=source, target=target, aligned=aligned)
    if isinstance(op, Start | Affine | Activate | Add | Sum | Swap):
        return replace(op, layout=known(op.layout))
    return op


def _aligned(op: Convolve, source: Layout, target: Layout, axis: int) -> bool:
    """Whether a lane's windows begin at its own pixels, and wrap around at the grid's edge if they do at all."""
    if source.lengths(axis)[2] != op.stride[axis] * target.lengths(axis)[2]:
        return False
    return not op.circular or source.exact(axis)


def _cost(op: Op, group: int, double: bool) -> float:
    """Instructions of one lane, roughly."""
    if isinstance(op, Start):
        return 3 * op.channels * op.layout.pixels
    if isinstance(op, Activate):
        return (100 if double else 14) * op.layout.pixels
    if isinstance(op, Convolve):
        return _convolution_cost(op, group)
    if isinstance(op, Affine | Add | Sum):
        return op.layout.pixels
    return 0


def _convolution_cost(op: Convolve, group: int) -> float:
    source, target = op.source, op.target
    if not op.aligned:
        # The map with its frame goes through shared memory, in double precision for the exact variance.
        framed = (source.height + op.size[0]) * (source.width + op.size[1])
        if 8 * framed * max(1, WARP // group) > SHARED_BYTES:
            return math.inf
        return 60 + 3 * source.pixels + 4 * op.size[0] * op.size[1] * target.pixels
    # Neighbours' pixels cost a shuffle each, or a trip through shared memory beyond a warp.
    each = 2.0 if group <= WARP else 6.0
    beside = [op.size[axis] - op.stride[axis] for axis in (0, 1)]
    sums = (op.size[1] - 1) * source.patch_height * target.patch_width + (op.size[0] - 1) * target.pixels
    edges = max(beside[1], 0) * source.patch_height + max(beside[0], 0) * target.patch_width
    return 0.75 * sums + each * edges + target.pixels + (40 if group > WARP else 0)
