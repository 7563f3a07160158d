"""A machine of NumPy arrays: programs run here as they do on a GPU, lane by lane, without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gdkl.infinite.fused.interpret import run
from gdkl.infinite.fused.lower import LaneProgram
from gdkl.infinite.machine import Constant, Layout, Machine

Array = npt.NDArray[Any]


def emulate(program: LaneProgram, x1: Array, x2: Array | None = None) -> tuple[Array, Array]:
    """The kernel of two sets of inputs, and the variances of the first, by the emulator.

    Args:
        program: A program for inputs of this shape.
        x1: Images, shape ``(n1, channels, height, width)``, or vectors ``(n1, features)``.
        x2: The second set; None for the first again.

    Returns:
        Shapes ``(n1, n2)`` and ``(n1,)``.
    """
    real = np.float64 if program.double else np.float32
    first, exact, factor1 = _factors(program, x1.astype(real))
    second, _, factor2 = (first, exact, factor1) if x2 is None else _factors(program, x2.astype(real))
    n1, n2 = len(x1), len(first[0]) if x2 is None else len(x2)
    i, j = (index.ravel() for index in np.indices((n1, n2)))
    machine = Lanes(program, [factor[i] for factor in first], [factor[j] for factor in second])
    start = None
    if program.group == 0:
        start = (x1.astype(real) @ (x1 if x2 is None else x2).astype(real).T).reshape(-1, 1)
    with np.errstate(all="ignore"):
        result = run(program, machine, start)[:, 0].reshape(n1, n2)
    return result * np.outer(factor1, factor2).astype(real), exact


def _factors(program: LaneProgram, x: Array) -> tuple[list[Array], Array, Array]:
    """Factors of single inputs, in order, their variances in double precision, and the factors that rounding took."""
    machine, exact = Lanes(program, None, None, x), Lanes(program, None, None, x.astype(np.float64))
    with np.errstate(all="ignore"):
        q, wide = (
            run(program, lanes, None if program.group else np.square(inputs).sum(1, keepdims=True))[:, 0]
            for lanes, inputs in ((machine, x), (exact, x.astype(np.float64)))
        )
        factor = np.sqrt(np.where(q > 0, wide / q, 1))
    return machine.made, wide, factor


class Lanes(Machine):
    """Values are arrays of shape (pairs, lanes)."""

    def __init__(
        self, program: LaneProgram, first: list[Array] | None, second: list[Array] | None, x: Array | None = None
    ) -> None:
        self.program = program
        self.real: Any = np.float64 if program.double or (x is not None and x.dtype == np.float64) else np.float32
        self.lanes = max(1, program.group)
        #: Factors that are read, one array of (pairs, pixels, lanes) each; None where they are made.
        self.first, self.second = first, second
        self.x = x
        self.made: list[Array] = []
        self.next = 0

    def number(self, value: float | Constant) -> Array:
        if isinstance(value, Constant):
            value = self.program.constants[value.index]
        return np.asarray(value, dtype=self.real)

    def add(self, a: Array, b: Array) -> Array:
        return a + b

    def subtract(self, a: Array, b: Array) -> Array:
        return a - b

    def multiply(self, a: Array, b: Array) -> Array:
        return a * b

    def fma(self, a: Array, b: Array, c: Array) -> Array:
        return a * b + c

    def clipped_ratio(self, a: Array, b: Array) -> Array:
        return np.clip(np.nan_to_num(a * (self.number(1.0) / b), nan=0.0, posinf=1.0, neginf=0.0), 0, 1)

    def quick_root(self, a: Array) -> Array:
        return np.sqrt(a)

    def function(self, name: str, *arguments: Array) -> Array:
        numpy_names = {"fmax": "maximum", "fmin": "minimum", "asin": "arcsin"}
        return getattr(np, numpy_names.get(name, name))(*arguments)

    def reciprocal_root(self, a: Array) -> Array:
        return np.where(a > 0, self.number(1.0) / np.sqrt(np.where(a > 0, a, 1)), 0).astype(self.real)

    def _place(self, layout: Layout) -> tuple[Array, Array]:
        """Row and column of each lane in the grid; those left over are beyond its last row."""
        lane = np.arange(self.lanes)
        return lane // layout.columns, lane % layout.columns

    def mask(self, layout: Layout, axis: int, lanes: tuple[bool, ...]) -> Array:
        place = self._place(layout)[axis]
        return np.array([at < len(lanes) and lanes[at] for at in place], dtype=self.real)

    def exchange(self, values: Sequence[Array], layout: Layout, axis: int, step: int, circular: bool) -> list[Array]:
        rows, columns = self._place(layout)
        lanes = np.arange(self.lanes)
        if circular:
            rows = np.minimum(rows, layout.rows - 1)
            if axis == 0:
                rows = (rows + step) % layout.rows
            else:
                columns = (columns + step) % layout.columns
            source = rows * layout.columns + columns
        else:
            source = lanes + step * (layout.columns if axis == 0 else 1)
            # Beyond the group a lane keeps its own, as a shuffle does.
            source = np.where((source >= 0) & (source < self.lanes), source, lanes)
        return [np.broadcast_to(value, (*value.shape[:-1], self.lanes))[..., source] for value in values]

    def reread(
        self,
        values: Sequence[Array],
        source: Layout,
        target: Layout,
        geometry: tuple[tuple[int, int], tuple[int, int], tuple[int, int]],
        circular: bool,
    ) -> list[Array]:
        size, stride, pads = geometry
        image = np.zeros((len(values[0]), *source.size), dtype=self.real)
        for (row, column, inside), value in zip(self._pixels(source), values, strict=True):
            image[:, row[inside], column[inside]] = value[:, inside]
        sums: list[Array] = []
        for row, column, inside in self._pixels(target):
            total = np.zeros((len(image), self.lanes), dtype=self.real)
            for tap_row in range(size[0]):
                for tap_column in range(size[1]):
                    r = row * stride[0] - pads[0] + tap_row
                    c = column * stride[1] - pads[1] + tap_column
                    if circular:
                        total = total + image[:, r % source.height, c % source.width]
                    else:
                        there = (r >= 0) & (r < source.height) & (c >= 0) & (c < source.width) & inside
                        total = total + np.where(there, image[:, np.where(there, r, 0), np.where(there, c, 0)], 0)
            sums.append(total)
        return sums

    def _pixels(self, layout: Layout) -> list[tuple[Array, Array, Array]]:
        """Row and column in the image of each pixel of the patch on each lane, and whether they are inside."""
        rows, columns = self._place(layout)
        pixels: list[tuple[Array, Array, Array]] = []
        for r in range(layout.patch_height):
            for c in range(layout.patch_width):
                row, column = rows * layout.patch_height + r, columns * layout.patch_width + c
                inside = (row < layout.height) & (column < layout.width) & (rows < layout.rows)
                pixels.append((row, column, inside))
        return pixels

    def total(self, value: Array, layout: Layout) -> Array:
        used = value[:, : layout.rows * layout.columns]
        return np.repeat(used.sum(-1, keepdims=True, dtype=self.real), self.lanes, axis=1)

    def repeat(self, count: int, values: Sequence[Array], body: Callable[[list[Array]], list[Array]]) -> list[Array]:
        state = list(values)
        for _ in range(count):
            state = body(state)
        return state

    def products(self, channels: int, layout: Layout) -> list[Array]:
        if self.writes_factors:
            self.made.append(self._packed(layout))
        first, second = (self.made[-1], self.made[-1]) if self.writes_factors else self._next()
        products = first * second
        return list(products[:, :channels].sum(1, dtype=self.real).transpose(1, 0, 2)[: layout.pixels])

    def _packed(self, layout: Layout) -> Array:
        """The images themselves as factors: (n, channels, pixels, lanes)."""
        if self.x is None:
            raise RuntimeError("factors are made from images")
        packed = np.zeros((*self.x.shape[:2], layout.pixels, self.lanes), dtype=self.real)
        for pixel, (row, column, inside) in enumerate(self._pixels(layout)):
            packed[:, :, pixel, inside] = self.x[:, :, row[inside], column[inside]]
        return packed

    def _next(self) -> tuple[Array, Array]:
        """The factors of both inputs that come next."""
        if self.first is None or self.second is None:
            raise RuntimeError("factors are read for pairs")
        at, self.next = self.next, self.next + 1
        return self.first[at], self.second[at]

    @property
    def writes_factors(self) -> bool:
        return self.first is None

    def read_factors(self, layout: Layout, planes: int) -> Callable[[int], tuple[Sequence[Array], Sequence[Array]]]:
        first, second = self._next()
        return lambda pixel: (
            [first[:, at, pixel] for at in range(planes)],
            [second[:, at, pixel] for at in range(planes)],
        )

    def write_factors(self, layout: Layout, planes: int) -> Callable[[int, Sequence[Array]], None]:
        pixels: list[Array] = []

        def write(pixel: int, values: Sequence[Array]) -> None:
            made = np.stack([np.broadcast_to(value, np.shape(values[0])) for value in values], 1)
            if not layout.single:
                made[..., ~self._pixels(layout)[pixel][2]] = 0
            pixels.append(made)
            if pixel == layout.pixels - 1:
                self.made.append(np.stack(pixels, 2))

        return write


@dataclass
class EmulatedInputs:
    x: torch.Tensor
    exact: torch.Tensor


class EmulatedKernel:
    def __init__(self, program: LaneProgram) -> None:
        self.program = program
        self.pairs_computed = 0

    bytes_per_input = 1000

    def prepare(self, x: torch.Tensor) -> EmulatedInputs:
        return EmulatedInputs(x, torch.from_numpy(emulate(self.program, x.numpy())[1]))

    def pairs(self, first, second, result, mirror, *, triangle) -> None:
        K = emulate(self.program, first.x.numpy(), second.x.numpy())[0]
        keep = np.triu(np.ones_like(K, dtype=bool), 1) if triangle else np.ones_like(K, dtype=bool)
        self.pairs_computed += int(keep.sum())
        keep = torch.from_numpy(keep)
        values = torch.from_numpy(K).to(result.dtype)
        result[keep] = values[keep]
        if mirror is not None:
            mirror.T[keep] = values[keep]
