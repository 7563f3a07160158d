"""The one form of a network that all engines read: what happens to the covariance of two inputs, step by step.

Layers emit operations (`InfiniteNetwork._ops`). The precise recursion (`precise`) reads them as they are. Engines that
carry the covariance alone (`covariance` on a CPU, `fused` on a GPU) read `simplified` ones. Branches work on a
stack: `Save` pushes a copy of the map, `Swap` exchanges the map with the top of the stack, `Add` pops and adds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from torch import Tensor

from gdkl.infinite.arrays import Inputs, scale_columns
from gdkl.infinite.formulas import ArcCosine, Formula, Normalised
from gdkl.infinite.spatial import Window, branches_differ, images_needed, no_read_out
from gdkl.infinite.state import State
from gdkl.numerics import OptionError

#: A variance: a tensor where gradients with respect to it are asked for.
Number: TypeAlias = float | Tensor


class UnsupportedError(Exception):
    """A network, an input or a device that an engine does not take; the message says which."""


class Function(Protocol):
    """What engines know of an activation."""

    @property
    def two_sided(self) -> bool:
        """Whether 1 + c must be carried beside 1 − c for full precision at antipodal inputs."""
        ...

    def propagate(self, state: State) -> State:
        """The precise state behind the activation."""
        ...

    def formula(self, arc_cosine: Callable[[float], ArcCosine]) -> tuple[Formula | None, float]:
        """E[φ(u)φ(v)] as a factor times a formula, or, without one, times k; ``arc_cosine`` makes ratio·k + E|uv|."""
        ...


@dataclass(frozen=True)
class Scale:
    """Variances of a first layer's weights, one per column; `Program.start` takes it off."""

    variances: tuple[float, ...]


@dataclass(frozen=True)
class Affine:
    """K ← w·K + b, T ← K_new + w·T."""

    w: Number
    b: Number


@dataclass(frozen=True)
class Convolve:
    """K ← w · mean over the window + b, T ← K_new + w · mean of T."""

    window: Window
    w: Number
    b: Number


@dataclass(frozen=True)
class Activate:
    """K ← E[φ(u)φ(v)], T ← T·E[φ'(u)φ'(v)]."""

    function: Function


@dataclass(frozen=True)
class Normalise:
    """K ← K / √((q1 + eps)(q2 + eps)), the same factor for T."""

    eps: float


@dataclass(frozen=True)
class Pool:
    """The mean over all pairs of pixels of two windows; over the whole image without a window."""

    window: Window | None
    normalise_edges: bool = False

    @property
    def layer(self) -> str:
        """The layer that emits it, for errors."""
        return "GlobalAvgPool2d" if self.window is None else "AvgPool2d"


@dataclass(frozen=True)
class Flatten:
    """The mean over all pixels."""


@dataclass(frozen=True)
class Save:
    """Push a copy of the map."""


@dataclass(frozen=True)
class Swap:
    """Exchange the map with the top of the stack."""


@dataclass(frozen=True)
class Add:
    """Pop a map and add it."""


@dataclass(frozen=True)
class Apply:
    """An element-wise formula of the covariance; of simplified programs."""

    formula: Formula


@dataclass(frozen=True)
class Sum:
    """The sum over all pixels; of simplified programs."""


Op: TypeAlias = Scale | Affine | Convolve | Activate | Normalise | Pool | Flatten | Save | Swap | Add | Apply | Sum


@dataclass(frozen=True)
class Program:
    """The operations of a network."""

    ops: tuple[Op, ...]

    @property
    def needs_pairs(self) -> bool:
        """Whether the covariances of all pairs of pixels are needed."""
        return any(isinstance(op, Pool) for op in self.ops)

    @property
    def two_sided(self) -> bool:
        """Whether 1 + c must be carried beside 1 − c."""
        return any(isinstance(op, Activate) and op.function.two_sided for op in self.ops)

    def pairs_ahead(self) -> list[bool]:
        """For each operation, whether one behind it needs all pairs of pixels."""
        ahead: list[bool] = []
        ends: list[bool] = []
        starts: list[bool] = []
        needed = False
        for op in reversed(self.ops):
            ahead.append(needed)
            if isinstance(op, Pool):
                needed = True
            elif isinstance(op, Add):
                ends.append(needed)
            elif isinstance(op, Swap):
                starts.append(needed)
                needed = ends.pop()
            elif isinstance(op, Save):
                needed = starts.pop() or needed
        return ahead[::-1]

    def start(self, inputs: Inputs) -> tuple[Program, Inputs]:
        """What engines see: variances per column are taken into the inputs."""
        if not any(isinstance(op, Scale) for op in self.ops):
            return self, inputs
        first, *others = self.ops
        if not isinstance(first, Scale) or any(isinstance(op, Scale) for op in others):
            raise OptionError("weight_var can have one variance per column in the first layer alone: pass a number.")
        x2 = None if inputs.x2 is None else scale_columns(inputs.x2, first.variances)
        return Program(tuple(others)), replace(inputs, x1=scale_columns(inputs.x1, first.variances), x2=x2)

    def variances(self, name: str) -> list[float]:
        """The positive weight (``"w"``) or bias (``"b"``) variances, in order."""
        return [float(getattr(op, name)) for op in self.ops if _varies(op, name)]

    def with_variances(self, weights: Iterable[Number], biases: Iterable[Number]) -> Program:
        """The same program with other variances in place of those that are positive."""
        values = {"w": iter(weights), "b": iter(biases)}

        def changed(op: Any) -> Any:
            new = {name: next(values[name]) for name in ("w", "b") if _varies(op, name)}
            return replace(op, **new) if new else op

        return Program(tuple(changed(op) for op in self.ops))


def _varies(op: Op, name: str) -> bool:
    return isinstance(op, Affine | Convolve) and float(getattr(op, name)) > 0


def simplified(  # noqa: PLR0912, PLR0915 - one flat walk over all operations
    program: Program, shape: Sequence[int], arc_cosine: Callable[[float], ArcCosine], *, least_eps: float
) -> tuple[Op, ...]:
    """Operations that give the same covariances: factors wait for an operation that multiplies anyway.

    The map starts as the *sum* of products over features or channels, the first of ``shape``. ``arc_cosine`` makes the
    formula ratio·k + E|uv| for a ratio; ``least_eps`` is the smallest eps of a normalisation that needs no care.
    What needs more than the covariance of equal pixels is unsupported.
    """
    ops: list[Op] = []
    factor = 1 / shape[0]
    size = tuple(shape[1:])
    stack: list[tuple[int, ...]] = []

    def settle() -> None:
        nonlocal factor
        if factor != 1:
            ops.append(Affine(factor, 0.0))
            factor = 1.0

    for op in program.ops:
        if isinstance(op, Affine):
            w, b, factor = float(op.w) * factor, float(op.b), 1.0
            if b == 0:
                factor = w
            else:
                ops.append(Affine(w, b))
        elif isinstance(op, Convolve):
            if not size:
                raise images_needed("Conv2d")
            size = op.window.outputs(*size)
            ops.append(Convolve(op.window, float(op.w) * factor, float(op.b)))
            factor = 1.0
        elif isinstance(op, Activate | Normalise):
            if isinstance(op, Activate):
                formula, gain = op.function.formula(arc_cosine)
            elif op.eps < least_eps:
                raise UnsupportedError("LayerNorm without eps")
            else:
                formula, gain = Normalised(op.eps), 1.0
            if formula is None:
                factor *= gain
            else:
                settle()
                ops.append(Apply(formula))
                factor = gain
        elif isinstance(op, Flatten):
            if size:
                ops.append(Sum())
                factor, size = factor / math.prod(size), ()
        elif isinstance(op, Save | Swap | Add):
            settle()
            if isinstance(op, Save):
                stack.append(size)
            elif isinstance(op, Swap):
                size, stack[-1] = stack[-1], size
            elif size != (main := stack.pop()):
                raise branches_differ(main, size)
            elif isinstance(ops[-1], Swap):
                # The second branch is the identity: the copy is added as it is.
                ops.pop()
            ops.append(op)
        elif isinstance(op, Pool):
            raise UnsupportedError(f"{op.layer} needs all pairs of pixels")
        else:
            raise TypeError(f"{op} is not an operation that layers emit")
    if size:
        raise no_read_out()
    settle()
    return tuple(ops)
