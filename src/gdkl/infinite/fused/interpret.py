"""The walk over a program that drives a machine, for pairs and for the notes of single inputs alike."""

from __future__ import annotations

from collections.abc import Sequence

from gdkl.infinite.fused.layout import SINGLE, Layout
from gdkl.infinite.fused.machine import Machine, Value
from gdkl.infinite.fused.program import Activate, Add, Affine, Convolve, Op, Program, Repeat, Save, Start, Sum, Swap

#: A map: the pixels of every lane's patch, row by row.
Map = list[Value]


def run(program: Program, machine: Machine, start: Value | None = None) -> Value:
    """Send a pair, or the variance of one input, through a program.

    Args:
        program: The program.
        machine: What it runs on; it knows whether notes are read or made.
        start: The first number of a program for vectors; programs for images begin with their own.

    Returns:
        The covariance, or the variance, behind the network.
    """
    k, _ = _follow(program.ops, machine, [] if start is None else [start], {})
    return k[0]


def _follow(ops: Sequence[Op], machine: Machine, k: Map, slots: dict[int, Map]) -> tuple[Map, dict[int, Map]]:
    for op in ops:
        if isinstance(op, Start):
            k = machine.products(op.channels, op.layout)
        elif isinstance(op, Convolve):
            k = _convolve(op, machine, k)
        elif isinstance(op, Affine):
            k = [_affine(machine, value, op.w, op.b) for value in k]
        elif isinstance(op, Activate):
            k = _activate(op, machine, k)
        elif isinstance(op, Save):
            slots = {**slots, op.slot: k}
        elif isinstance(op, Swap):
            k, slots = slots[op.slot], {**slots, op.slot: k}
        elif isinstance(op, Add):
            k = [machine.add(a, b) for a, b in zip(k, slots[op.slot], strict=True)]
            slots = {slot: kept for slot, kept in slots.items() if slot != op.slot}
        elif isinstance(op, Sum):
            k = [_total(op.layout, machine, k)]
        else:
            k, slots = _repeat(op, machine, k, slots)
    return k, slots


def _repeat(op: Repeat, machine: Machine, k: Map, slots: dict[int, Map]) -> tuple[Map, dict[int, Map]]:
    """A loop, whose state is the map and all slots in use."""
    names = sorted(slots)
    lengths = [len(k), *(len(slots[name]) for name in names)]

    def split(values: list[Value]) -> tuple[Map, dict[int, Map]]:
        maps: list[Map] = []
        for length in lengths:
            maps.append(values[:length])
            values = values[length:]
        return maps[0], dict(zip(names, maps[1:], strict=True))

    def body(values: list[Value]) -> list[Value]:
        new, kept = _follow(op.body, machine, *split(values))
        return [*new, *(value for name in names for value in kept[name])]

    state = [*k, *(value for name in names for value in slots[name])]
    return split(machine.repeat(op.count, state, body))


def _affine(machine: Machine, value: Value, w: int | None, b: int | None) -> Value:
    if w is None:
        return value if b is None else machine.add(value, machine.constant(b))
    if b is None:
        return machine.multiply(value, machine.constant(w))
    return machine.fma(value, machine.constant(w), machine.constant(b))


def _activate(op: Activate, machine: Machine, k: Map) -> Map:
    formula = op.formula
    if machine.makes_notes:
        write = machine.write_notes(op.layout, formula.planes)
        new: Map = []
        for pixel, q in enumerate(k):
            notes = formula.notes(machine, q)
            write(pixel, notes)
            new.append(formula.variance(machine, q, notes))
        return new
    read = machine.read_notes(op.layout, formula.planes)
    return [formula.pair(machine, value, *read(pixel)) for pixel, value in enumerate(k)]


def _total(layout: Layout, machine: Machine, k: Map) -> Value:
    """The sum of the pixels inside the image: a lane's rows, then its column of row sums, then all lanes."""
    rows: list[Value] = []
    for r in range(layout.patch_height):
        line = [_masked(machine, layout, 1, c, k[r * layout.patch_width + c]) for c in range(layout.patch_width)]
        rows.append(_masked(machine, layout, 0, r, _sum(machine, line)))
    return machine.total(_sum(machine, rows), layout)


def _sum(machine: Machine, values: Sequence[Value]) -> Value:
    total = values[0]
    for value in values[1:]:
        total = machine.add(total, value)
    return total


def _masked(machine: Machine, layout: Layout, axis: int, offset: int, value: Value) -> Value:
    lanes = layout.inside(axis, offset)
    return value if all(lanes) else machine.multiply(machine.mask(layout, axis, lanes), value)


def _convolve(op: Convolve, machine: Machine, k: Map) -> Map:
    if op.aligned:
        height, width = op.source.patch_height, op.source.patch_width
        used = {offset % height for offset in _offsets(op, 0)}
        lines = {r: k[r * width : (r + 1) * width] for r in range(height) if r in used}
        # Along rows, and only those that any window reads; then along columns, which are fewer by then.
        across = dict(zip(lines, _slide(op, machine, 1, list(lines.values())), strict=True))
        columns = [[across[r][c] if r in across else None for r in range(height)] for c in range(op.target.patch_width)]
        done = _slide(op, machine, 0, columns)
        k = [done[c][r] for r in range(op.target.patch_height) for c in range(op.target.patch_width)]
    else:
        k = machine.reread(k, op.source, op.target, (op.size, op.stride, op.pads), op.circular)
    return [_affine(machine, value, op.w, op.b) for value in k]


def _offsets(op: Convolve, axis: int) -> range:
    """Offsets from a lane's first pixel that its windows read along an axis."""
    patch = op.target.lengths(axis)[2]
    low = op.pads[axis]
    return range(-low, (patch - 1) * op.stride[axis] - low + op.size[axis])


def _slide(op: Convolve, machine: Machine, axis: int, lines: list[Map]) -> list[Map]:
    """Sums over windows along one axis, for several lines of pixels of each lane at once."""
    patch_in, patch_out = op.source.lengths(axis)[2], op.target.lengths(axis)[2]
    size, stride, low = op.size[axis], op.stride[axis], op.pads[axis]
    read = {output * stride - low + tap for output in range(patch_out) for tap in range(size)}
    # Neighbours' pixels first, all of one distance together.
    found: list[dict[int, Value]] = [{o: line[o] for o in read if 0 <= o < patch_in} for line in lines]
    for step in sorted({o // patch_in for o in read} - {0}):
        offsets = sorted(o for o in read if o // patch_in == step)
        sent = [line[o % patch_in] for line in lines for o in offsets]
        got = iter(machine.exchange(sent, op.source, axis, step, op.circular))
        for line in found:
            for o in offsets:
                line[o] = next(got)
    masks: dict[int, Value] = {}
    if not op.circular:
        for o in sorted(read):
            lanes = op.source.inside(axis, o)
            if not all(lanes):
                masks[o] = machine.mask(op.source, axis, lanes)
    return [_window_sums(machine, values, masks, patch_out, (size, stride, low)) for values in found]


def _window_sums(
    machine: Machine, values: dict[int, Value], masks: dict[int, Value], outputs: int, geometry: tuple[int, int, int]
) -> Map:
    """Sums over windows of one line; a mask costs nothing where its pixel is the last of a sum."""
    size, stride, low = geometry
    uses = {o: sum(0 <= o + low - i * stride < size for i in range(outputs)) for o in values}
    edge = {o for o in masks if uses[o] == 1}
    plain = {o: machine.multiply(masks[o], v) if o in masks and o not in edge else v for o, v in values.items()}

    def closed(start: Value | None, offsets: Sequence[int]) -> Value:
        for o in sorted(offsets, key=lambda o: o in edge):
            if o in edge:
                start = (
                    machine.multiply(masks[o], plain[o]) if start is None else machine.fma(masks[o], plain[o], start)
                )
            else:
                start = plain[o] if start is None else machine.add(start, plain[o])
        return start

    sums: Map = []
    for i in range(outputs):
        first = i * stride - low
        window = range(first, first + size)
        if size == 3 and stride == 1:
            # Two neighbouring windows share two pixels.
            if i % 2 == 0:
                shared = closed(None, window[1:])
                sums.append(closed(shared, window[:1]))
                if i + 1 < outputs:
                    sums.append(closed(shared, [first + 3]))
        else:
            sums.append(closed(None, window))
    return sums


__all__ = ["SINGLE", "run"]
