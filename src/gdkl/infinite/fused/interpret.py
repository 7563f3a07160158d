"""The walk over a program that drives a machine, for pairs and for the factors of single inputs alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gdkl.infinite.fused.lower import LaneProgram, Repeat, Steps
from gdkl.infinite.fused.placement import Step
from gdkl.infinite.machine import Layout, Machine, Value
from gdkl.infinite.program import Add, Affine, Apply, Convolve, Save, Sum, Swap

#: A map: the pixels of every lane's patch, row by row.
Map = list[Value]


def run(program: LaneProgram, machine: Machine, start: Value | None = None) -> Value:
    """Send a pair, or the variance of one input, through a program; one for vectors begins with a ``start``."""
    k = machine.products(program.channels, program.start) if program.group else [start]
    return _follow(program.steps, machine, k, [])[0]


def _follow(steps: Steps, machine: Machine, k: Map, stack: list[Map]) -> Map:
    for step in steps:
        if isinstance(step, Repeat):
            k = _repeat(step, machine, k, stack)
            continue
        op = step.op
        if isinstance(op, Convolve):
            k = [_affine(machine, value, op.w, op.b) for value in _sums(step, op, machine, k)]
        elif isinstance(op, Affine):
            k = [_affine(machine, value, op.w, op.b) for value in k]
        elif isinstance(op, Apply):
            k = _apply(op, step.source, machine, k)
        elif isinstance(op, Save):
            stack.append(k)
        elif isinstance(op, Swap):
            k, stack[-1] = stack[-1], k
        elif isinstance(op, Add):
            k = [machine.add(a, b) for a, b in zip(k, stack.pop(), strict=True)]
        elif isinstance(op, Sum):
            k = [_total(step.source, machine, k)]
        else:
            raise TypeError(f"{op} is no operation of a simplified program")
    return k


def _repeat(step: Repeat, machine: Machine, k: Map, stack: list[Map]) -> Map:
    """A loop, whose state is the map and the stack."""
    lengths = [len(part) for part in (k, *stack)]

    def split(values: list[Value]) -> list[Map]:
        maps: list[Map] = []
        for length in lengths:
            maps.append(values[:length])
            values = values[length:]
        return maps

    def body(values: list[Value]) -> list[Value]:
        first, *others = split(values)
        new = _follow(step.body, machine, first, others)
        return [*new, *(value for part in others for value in part)]

    state = [value for part in (k, *stack) for value in part]
    k, *stack[:] = split(machine.repeat(step.count, state, body))
    return k


def _affine(machine: Machine, value: Value, w: Any, b: Any) -> Value:
    """w·value + b; a factor of one and a term of zero are left out."""
    if w == 1:
        return value if b == 0 else machine.add(value, machine.number(b))
    if b == 0:
        return machine.multiply(value, machine.number(w))
    return machine.fma(value, machine.number(w), machine.number(b))


def _apply(op: Apply, layout: Layout, machine: Machine, k: Map) -> Map:
    formula = op.formula
    if machine.writes_factors:
        write = machine.write_factors(layout, formula.planes)
        new: Map = []
        for pixel, q in enumerate(k):
            factors = formula.factors(machine, q)
            write(pixel, factors)
            new.append(formula.variance(machine, q, factors))
        return new
    read = machine.read_factors(layout, formula.planes)
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


def _sums(step: Step, op: Convolve, machine: Machine, k: Map) -> Map:
    """Sums over windows."""
    source, target = step.source, step.target
    if not step.aligned:
        return machine.reread(k, source, target, (op.window.size, op.window.stride, step.pads), step.circular)
    height, width = source.patch_height, source.patch_width
    low = step.pads[0]
    # Offsets from a lane's first row that its windows read.
    reads = range(-low, (target.patch_height - 1) * op.window.stride[0] - low + op.window.size[0])
    used = {offset % height for offset in reads}
    lines = {r: k[r * width : (r + 1) * width] for r in range(height) if r in used}
    # Along rows, and only those that any window reads; then along columns, which are fewer by then.
    across = dict(zip(lines, _slide(step, op, machine, 1, list(lines.values())), strict=True))
    columns = [[across[r][c] if r in across else None for r in range(height)] for c in range(target.patch_width)]
    done = _slide(step, op, machine, 0, columns)
    return [done[c][r] for r in range(target.patch_height) for c in range(target.patch_width)]


def _slide(step: Step, op: Convolve, machine: Machine, axis: int, lines: list[Map]) -> list[Map]:
    """Sums over windows along one axis, for several lines of pixels of each lane at once."""
    source, circular = step.source, step.circular
    patch_in, patch_out = source.lengths(axis)[2], step.target.lengths(axis)[2]
    size, stride, low = op.window.size[axis], op.window.stride[axis], step.pads[axis]
    read = {output * stride - low + tap for output in range(patch_out) for tap in range(size)}
    # Neighbours' pixels first, all of one distance together.
    found: list[dict[int, Value]] = [{o: line[o] for o in read if 0 <= o < patch_in} for line in lines]
    for distance in sorted({o // patch_in for o in read} - {0}):
        offsets = sorted(o for o in read if o // patch_in == distance)
        sent = [line[o % patch_in] for line in lines for o in offsets]
        got = iter(machine.exchange(sent, source, axis, distance, circular))
        for line in found:
            for o in offsets:
                line[o] = next(got)
    masks: dict[int, Value] = {}
    if not circular:
        for o in sorted(read):
            lanes = source.inside(axis, o)
            if not all(lanes):
                masks[o] = machine.mask(source, axis, lanes)
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
