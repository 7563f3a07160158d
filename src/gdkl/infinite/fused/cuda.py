# ruff: noqa: D102 - the abstract machine says what each operation is
"""A machine that writes CUDA text: each operation becomes a line with a name for its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from gdkl.infinite.fused.lower import LaneProgram, plane
from gdkl.infinite.machine import WARP, Constant, Layout, Machine

#: Bytes of shared memory for what lanes exchange, where a group is more than a warp.
BOX_BYTES = 32 * 1024


class Mode(Enum):
    """What a text computes."""

    PAIRS = "covariances, from the factors of both inputs"
    FACTORS = "the factors of one input and its variance"
    EXACT = "the variance of one input in double precision alone"


@dataclass(frozen=True)
class Wide:
    """How many numbers a lane loads at a time, and the type that does so."""

    count: int
    type: str

    @classmethod
    def of(cls, pixels: int, real: str) -> Wide:
        """The widest load that divides a patch, 16 bytes at most."""
        for count in (4, 2):
            if pixels % count == 0 and count * (8 if real == "double" else 4) <= 16:
                return cls(count, f"{real}{count}")
        return cls(1, real)


class Text(Machine):
    """Values are names of variables or literals."""

    def __init__(self, program: LaneProgram, mode: Mode) -> None:
        self.program, self.mode = program, mode
        self.group = program.group
        #: Type of the arithmetic, and of stored factors.
        self.real = "double" if program.double or mode is Mode.EXACT else "float"
        self.stored = "double" if program.double else "float"
        self.prelude: list[str] = []
        self.lines: list[str] = []
        self.declared: dict[tuple[object, ...], str] = {}
        self.count = 0
        #: Numbers of shared memory that a group needs.
        self.box = 0
        #: Which half of the box is written next.
        self.half = 0

    def text(self, indent: str = "    ") -> str:
        """All lines, what is the same for the whole kernel first."""
        return "\n".join(indent + line for line in [*self.prelude, *self.lines])

    def name(self, prefix: str = "t") -> str:
        """A fresh name."""
        self.count += 1
        return f"{prefix}{self.count}"

    def let(self, expression: str, kind: str | None = None, prefix: str = "t") -> str:
        """A new value."""
        name = self.name(prefix)
        self.lines.append(f"const {kind or self.real} {name} = {expression};")
        return name

    def once(self, key: tuple[object, ...], declaration: str, expression: str) -> str:
        """A value at the head of the kernel that is declared when it is first asked for."""
        if key not in self.declared:
            self.declared[key] = name = self.name("h")
            self.prelude.append(f"const {declaration} {name} = {expression};")
        return self.declared[key]

    def number(self, value: float | Constant) -> str:
        if isinstance(value, Constant):
            return f"{'wide' if self.real == 'double' else 'narrow'}.v[{value.index}]"
        return f"{float(value).hex()}" if self.real == "double" else f"{float(np.float32(value)).hex()}f"

    def add(self, a: str, b: str) -> str:
        return self.let(f"{a} + {b}")

    def subtract(self, a: str, b: str) -> str:
        return self.let(f"{a} - {b}")

    def multiply(self, a: str, b: str) -> str:
        return self.let(f"{a} * {b}")

    def fma(self, a: str, b: str, c: str) -> str:
        return self.let(f"madd({a}, {b}, {c})")

    def clipped_ratio(self, a: str, b: str) -> str:
        inverse = self.let(f"quick_rcp({b})")
        return self.let(f"clipped_product({a}, {inverse})")

    def quick_root(self, a: str) -> str:
        return self.let(f"quick_sqrt({a})")

    def function(self, name: str, *arguments: str) -> str:
        if name == "divide":
            return self.let(" / ".join(arguments))
        if name == "sqrt":
            return self.let(f"root({arguments[0]})")
        suffix = "" if self.real == "double" else "f"
        return self.let(f"{name}{suffix}({', '.join(arguments)})")

    def reciprocal_root(self, a: str) -> str:
        return self.let(f"reciprocal_root({a})")

    def place(self, layout: Layout) -> tuple[str, str]:
        """Names of a lane's row and column in the grid."""
        columns = layout.columns
        row = self.once(("row", columns), "int", f"lane / {columns}")
        return row, self.once(("column", columns), "int", f"lane % {columns}")

    def mask(self, layout: Layout, axis: int, lanes: tuple[bool, ...]) -> str:
        low, high = lanes.index(True) if any(lanes) else 1, max((i for i, yes in enumerate(lanes) if yes), default=0)
        at = self.place(layout)[axis]
        return self.once(
            ("mask", at, low, high),
            self.real,
            f"({at} >= {low} && {at} <= {high}) ? {self.number(1)} : {self.number(0)}",
        )

    def sync(self) -> None:
        """Let all lanes of the group see what others have written."""
        self.lines.append("__syncwarp();" if self.group <= WARP else "__syncthreads();")

    def exchange(self, values: Sequence[str], layout: Layout, axis: int, step: int, circular: bool) -> list[str]:
        distance = step * (layout.columns if axis == 0 else 1)
        if self.group <= WARP and not circular:
            # Beyond the group a lane gets its own value, which is masked.
            way, distance = ("down", distance) if distance > 0 else ("up", -distance)
            if distance >= self.group:
                return list(values)
            return [self.let(f"__shfl_{way}_sync(ALL, {v}, {distance}, {self.group})") for v in values]
        source = self._source(layout, axis, step, circular)
        if self.group <= WARP:
            return [self.let(f"__shfl_sync(ALL, {v}, {source}, {self.group})") for v in values]
        results: list[str] = []
        most = BOX_BYTES // (2 * 8 * self.group)
        for start in range(0, len(values), most):
            part = values[start : start + most]
            # Two halves in turn: a lane may still read the one while another writes the next.
            offset = self.half * most * self.group
            self.box, self.half = max(self.box, 2 * most * self.group), 1 - self.half
            for i, value in enumerate(part):
                self.lines.append(f"box[{offset + i * self.group} + lane] = {value};")
            self.sync()
            results += [self.let(f"box[{offset + i * self.group} + {source}]") for i in range(len(part))]
        return results

    def _source(self, layout: Layout, axis: int, step: int, circular: bool) -> str:
        """The lane to read from."""
        row, column = self.place(layout)
        if circular:
            lanes = layout.rows if axis == 0 else layout.columns
            turned = f"({(row, column)[axis]} + {step % lanes}) % {lanes}"
            at = f"({turned}) * {layout.columns} + {column}" if axis == 0 else f"{row} * {layout.columns} + {turned}"
        else:
            at = f"lane + {step * (layout.columns if axis == 0 else 1)}"
        # Lanes that are left over, or at the edge, read their own.
        name = self.once(("at", at), "int", at)
        return self.once(("source", at), "int", f"({name} >= 0 && {name} < {self.group}) ? {name} : lane")

    def reread(
        self,
        values: Sequence[str],
        source: Layout,
        target: Layout,
        geometry: tuple[tuple[int, int], tuple[int, int], tuple[int, int]],
        circular: bool,
    ) -> list[str]:
        size, stride, pads = geometry
        if circular:
            pads_in, height, width = (0, 0), source.height, source.width
        else:
            # The image with a frame of zeros as wide as its windows reach.
            pads_in = pads
            height = max(source.height + pads[0], (target.height - 1) * stride[0] + size[0])
            width = max(source.width + pads[1], (target.width - 1) * stride[1] + size[1])
        self.box = max(self.box, height * width)
        self.sync()
        self.lines.append(f"for (int z = lane; z < {height * width}; z += {self.group}) box[z] = {self.number(0)};")
        self.sync()
        for pixel, value in enumerate(values):
            row, column, inside = self._pixel(source, pixel)
            self.lines.append(
                f"if ({inside}) box[({row} + {pads_in[0]}) * {width} + {column} + {pads_in[1]}] = {value};"
            )
        self.sync()
        sums: list[str] = []
        for pixel in range(target.pixels):
            row, column, _ = self._pixel(target, pixel)
            # Pixels outside read what the last one inside reads.
            r = self.let(f"min({row}, {target.height - 1}) * {stride[0]}", "int", "i")
            c = self.let(f"min({column}, {target.width - 1}) * {stride[1]}", "int", "i")
            total = ""
            for i in range(size[0]):
                for j in range(size[1]):
                    if circular:
                        # Enough turns to keep the remainder positive.
                        turns = source.height * (pads[0] // source.height + 1)
                        across = source.width * (pads[1] // source.width + 1)
                        tap_row = f"(({r} + {i - pads[0] + turns}) % {source.height})"
                        tap_column = f"({c} + {j - pads[1] + across}) % {source.width}"
                        tap = f"box[{tap_row} * {width} + {tap_column}]"
                    else:
                        tap = f"box[({r} + {i}) * {width} + {c} + {j}]"
                    total = self.let(tap) if not total else self.let(f"{total} + {tap}")
            sums.append(total)
        self.sync()
        return sums

    def _pixel(self, layout: Layout, pixel: int) -> tuple[str, str, str]:
        """Row and column of a lane's pixel in the image, and the condition that it lies inside."""
        row, column = self.place(layout)
        r, c = divmod(pixel, layout.patch_width)
        at_row, at_column = f"({row} * {layout.patch_height} + {r})", f"({column} * {layout.patch_width} + {c})"
        conditions = [
            f"{at} < {length}"
            for at, length, axis, offset in ((at_row, layout.height, 0, r), (at_column, layout.width, 1, c))
            if not all(layout.inside(axis, offset))
        ]
        if layout.rows * layout.columns < self.group:
            conditions.append(f"{row} < {layout.rows}")
        return at_row, at_column, " && ".join(conditions) or "true"

    def total(self, value: str, layout: Layout) -> str:
        used = layout.rows * layout.columns
        if used < self.group:
            value = self.let(f"lane < {used} ? {value} : {self.number(0)}")
        distance = min(self.group, WARP) // 2
        while distance:
            value = self.let(f"{value} + __shfl_xor_sync(ALL, {value}, {distance}, {min(self.group, WARP)})")
            distance //= 2
        if self.group <= WARP:
            return value
        warps = self.group // WARP
        self.box = max(self.box, warps)
        self.sync()
        self.lines.append(f"if (lane % {WARP} == 0) box[lane / {WARP}] = {value};")
        self.sync()
        return self.let(" + ".join(f"box[{warp}]" for warp in range(warps)))

    def repeat(self, count: int, values: Sequence[str], body: Callable[[list[str]], list[str]]) -> list[str]:
        label = self.name("loop")
        state = [f"{label}_{i}" for i in range(len(values))]
        self.lines += [f"{self.real} {name} = {value};" for name, value in zip(state, values, strict=True)]
        # Shared memory may be in use from before, or from the last turn.
        if self.group > WARP:
            self.sync()
        self.lines += ["#pragma unroll 1", f"for (int {label} = 0; {label} < {count}; ++{label}) {{"]
        new = body(list(state))
        if self.group > WARP:
            self.sync()
        # A value that is one of the old ones is read before any is written.
        kept = [
            self.let(value) if value in state and value != name else value
            for name, value in zip(state, new, strict=True)
        ]
        self.lines += [f"{name} = {value};" for name, value in zip(state, kept, strict=True) if name != value]
        self.lines.append("}")
        return state

    def products(self, channels: int, layout: Layout) -> list[str]:
        totals = [self.name("p") for _ in range(layout.pixels)]
        self.lines += [f"{self.real} {name} = {self.number(0)};" for name in totals]
        unroll = "#pragma unroll" if channels <= 4 else "#pragma unroll 1"
        self.lines += [unroll, f"for (int channel = 0; channel < {channels}; ++channel) {{"]
        if self.mode is Mode.PAIRS:
            read = self.read_factors(layout, 1)
            for pixel, name in enumerate(totals):
                (a,), (b,) = read(pixel)
                self.lines.append(f"{name} = madd({a}, {b}, {name});")
        else:
            wide = Wide.of(layout.pixels, self.stored)
            for pixel, name in enumerate(totals):
                row, column, inside = self._pixel(layout, pixel)
                at = f"image[(channel * {layout.height} + {row}) * {layout.width} + {column}]"
                value = self.let(f"({inside}) ? ({self.real}){at} : {self.number(0)}")
                if self.mode is Mode.FACTORS:
                    self.lines.append(f"{self._spot(wide, pixel, 0)} = {value};")
                self.lines.append(f"{name} = madd({value}, {value}, {name});")
            if self.mode is Mode.FACTORS:
                self.lines.append(f"note += {plane(layout, self.group)};")
        self.lines.append("}")
        return totals

    def _spot(self, wide: Wide, pixel: int, offset: int) -> str:
        """Where a lane's pixel of a factor is written."""
        part, rest = divmod(pixel, wide.count)
        return f"note[{offset + part * self.group * wide.count} + lane * {wide.count} + {rest}]"

    @property
    def writes_factors(self) -> bool:
        return self.mode is not Mode.PAIRS

    def write_factors(self, layout: Layout, planes: int) -> Callable[[int, Sequence[str]], None]:
        size = plane(layout, self.group)
        wide = Wide.of(layout.pixels, self.stored)

        def write(pixel: int, values: Sequence[str]) -> None:
            if self.mode is not Mode.FACTORS:
                return
            for at, value in enumerate(values):
                if self.group == 0:
                    self.lines.append(f"note[{at} * (long long)n] = {value};")
                elif layout.single:
                    self.lines.append(f"if (lane == 0) note[{at * size}] = {value};")
                else:
                    inside = self._pixel(layout, pixel)[2]
                    kept = value if inside == "true" else f"({inside}) ? {value} : {self.number(0)}"
                    self.lines.append(f"{self._spot(wide, pixel, at * size)} = {kept};")
            if pixel == layout.pixels - 1:
                self.lines.append(f"note += {planes * size}{' * (long long)n' if self.group == 0 else ''};")

        return write

    def read_factors(self, layout: Layout, planes: int) -> Callable[[int], tuple[Sequence[str], Sequence[str]]]:
        size = plane(layout, self.group)
        wide = Wide.of(layout.pixels, self.stored)
        loaded: list[tuple[str, str]] = []

        def load(pixel: int) -> None:
            loaded.clear()
            for at in range(planes):
                names = (self.name("note_"), self.name("note_"))
                for name, source, count in zip(names, ("first", "second"), ("n1", "n2"), strict=True):
                    if self.group == 0:
                        where = f"__ldg({source} + {at} * (long long){count})"
                        self.lines.append(f"const {self.stored} {name} = {where};")
                    elif layout.single:
                        self.lines.append(f"const {self.stored} {name} = __ldg({source} + {at * size});")
                    else:
                        offset = at * size + pixel * self.group
                        pointer = f"reinterpret_cast<const {wide.type}*>({source} + {offset}) + lane"
                        self.lines.append(f"const {wide.type} {name} = __ldg({pointer});")
                loaded.append(names)

        def read(pixel: int) -> tuple[Sequence[str], Sequence[str]]:
            if pixel % wide.count == 0:
                load(pixel)
            part = "" if wide.count == 1 else "." + "xyzw"[pixel % wide.count]
            first, second = ([names[side] + part for names in loaded] for side in (0, 1))
            if pixel == layout.pixels - 1:
                for source, count in (("first", "n1"), ("second", "n2")):
                    step = f"{planes} * (long long){count}" if self.group == 0 else f"{planes * size}"
                    self.lines.append(f"{source} += {step};")
            return first, second

        return read
