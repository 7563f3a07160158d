"""From a network's program and the shape of its inputs to a program for lanes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import torch

from gdkl.infinite.formulas import ArcCosine, ArcPolynomial, ArcSine, Normalised
from gdkl.infinite.fused.placement import Step, place
from gdkl.infinite.machine import SINGLE, Constant, Layout
from gdkl.infinite.program import Affine, Apply, Convolve, Op, Program, UnsupportedError, simplified
from gdkl.numerics import DataError

#: Numbers that fit the parameters of a kernel.
MOST_CONSTANTS = 256


@dataclass(frozen=True)
class Repeat:
    """Some steps several times over, with the same constants but factors that go on."""

    count: int
    body: tuple[Step, ...]


Steps: TypeAlias = tuple[Step | Repeat, ...]


@dataclass(frozen=True)
class LaneProgram:
    """A network's covariance, compiled for one size of inputs.

    The covariance of a pair is a map of one number per pixel, spread over lanes by a `Layout`. What belongs to one
    input alone, such as the square root of its variance before an activation, is a *factor*: computed once per input,
    read for every pair, in the order of the steps. ``constants`` are the variances that steps refer to. ``group`` lanes
    work on a pair; 0 stands for vectors, one thread per entry of the matrix.
    """

    channels: int
    start: Layout
    steps: Steps
    constants: tuple[float, ...]
    double: bool
    group: int

    @property
    def factors(self) -> int:
        """Numbers that an input keeps for its pairs, its own pixels included."""
        own = self.channels * plane(self.start, self.group) if self.group else 0
        return own + sum(
            step.op.formula.planes * plane(step.source, self.group)
            for step in flat(self.steps)
            if isinstance(step.op, Apply)
        )


def lower(program: Program, shape: Sequence[int], dtype: torch.dtype) -> LaneProgram:
    """The program for lanes of a network's NNGP for inputs of a shape, unless one of both is unsupported."""
    tiny, double = torch.finfo(dtype).tiny, dtype == torch.float64
    try:
        ops = simplified(program, shape, ArcSine if double else ArcPolynomial, least_eps=tiny)
        if not all(isinstance(op.formula, ArcCosine | Normalised) for op in ops if isinstance(op, Apply)):
            if double:
                raise UnsupportedError("in float64 only piecewise linear activations are as exact as they must be")
            double = True
            ops = simplified(program, shape, ArcSine, least_eps=tiny)
    except DataError as error:
        raise UnsupportedError(str(error)) from error
    ops, constants = _numbered(ops)
    if len(constants) > MOST_CONSTANTS:
        raise UnsupportedError("the network has too many different variances")
    if len(shape) == 3:
        group, start, steps = place(ops, (shape[0], shape[1], shape[2]), double=double)
    else:
        group, start, steps = 0, SINGLE, tuple(Step(op, SINGLE, SINGLE) for op in ops)
    return LaneProgram(shape[0], start, rolled(steps), constants, double, group)


def _numbered(ops: Sequence[Op]) -> tuple[tuple[Op, ...], tuple[float, ...]]:
    """Operations that refer to their numbers by place, zero and one excepted: other variances have the same text."""
    places: dict[float, int] = {}

    def number(value: Any) -> Any:
        return value if value in (0.0, 1.0) else Constant(places.setdefault(value, len(places)))

    def numbered(op: Op) -> Op:
        if isinstance(op, Affine):
            return Affine(number(op.w), number(op.b))
        if isinstance(op, Convolve):
            # Machines sum over the window.
            return Convolve(op.window, number(op.w / (op.window.size[0] * op.window.size[1])), number(op.b))
        if isinstance(op, Apply):
            formula: Any = op.formula
            return Apply(replace(formula, **{f.name: number(getattr(formula, f.name)) for f in fields(formula)}))
        return op

    return tuple(numbered(op) for op in ops), tuple(places)


def plane(layout: Layout, group: int) -> int:
    """Numbers of one factor of a whole map."""
    if group == 0:
        return 1
    # A single number takes four places, so that what follows stays aligned for wide loads.
    return 4 if layout.single else layout.pixels * group


def flat(steps: Sequence[Step | Repeat]) -> Iterator[Step]:
    """All steps in order, repeated ones as often as they happen."""
    for step in steps:
        if isinstance(step, Repeat):
            for _ in range(step.count):
                yield from step.body
        else:
            yield step


def rolled(steps: Sequence[Step]) -> Steps:
    """The same steps with the longest repetitions as loops, so that a deep network stays a short text."""
    # Comparing numbers is much faster than comparing steps.
    known: dict[Step, int] = {}
    names, best = [known.setdefault(step, len(known)) for step in steps], (0, 0, 0, 0)
    for start in range(len(names)):
        for length in range(1, (len(names) - start) // 2 + 1):
            body, count = names[start : start + length], 1
            while names[start + count * length : start + (count + 1) * length] == body:
                count += 1
            # The most steps saved; of equals, the one that starts first and is shortest.
            if (count - 1) * length > best[0]:
                best = ((count - 1) * length, start, length, count)
    saved, start, length, count = best
    if saved == 0:
        return tuple(steps)
    body = tuple(steps[start : start + length])
    return (*rolled(steps[:start]), Repeat(count, body), *rolled(steps[start + count * length :]))
