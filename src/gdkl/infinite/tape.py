# ruff: noqa: D102 - the abstract arithmetic says what each operation is
"""Formulas on a CPU: recorded once as a list of torch calls that write into few arrays of a tile's size.

Fresh memory for every intermediate value would cost more than the arithmetic, and so would every pass over memory that
another operation can do on its way: products and quotients wait for a sum that takes them along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import torch
from torch import Tensor

from gdkl.infinite.buffers import BufferPool
from gdkl.infinite.formulas import Formula
from gdkl.infinite.machine import Arithmetic, Constant, Value

#: Functions that torch has under other names than C.
_TORCH_NAMES = {"fabs": "abs", "fmax": "maximum", "fmin": "minimum"}


@dataclass(frozen=True)
class _Register:
    """A value that a call has computed, or an argument of the formula."""

    index: int


@dataclass
class _Term:
    """factor·a, factor·a·b or factor·a/b, not computed yet."""

    factor: float
    a: _Register
    b: _Register | None = None
    divided: bool = False
    done: _Register | None = None


_Call: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], dict[str, float], int]


class _Recorder(Arithmetic):
    """Records calls; values are floats, registers and terms."""

    def __init__(self, arguments: int, *, careful: bool) -> None:
        self.calls: list[_Call] = []
        self.registers = arguments
        self.careful = careful

    def call(self, function: Callable[..., Any], *arguments: Any, **options: float) -> _Register:
        """Record a call, whose result is a new register."""
        self.registers += 1
        self.calls.append((function, arguments, options, self.registers - 1))
        return _Register(self.registers - 1)

    def value(self, x: Value) -> _Register | float:
        """A value that is computed."""
        if not isinstance(x, _Term):
            return x
        if x.done is None:
            if x.b is None:
                x.done = self.call(torch.mul, x.a, x.factor)
            else:
                x.done = self.call(torch.div if x.divided else torch.mul, x.a, x.b)
                if x.factor != 1:
                    x.done = self.call(torch.mul, x.done, x.factor)
        return x.done

    def number(self, value: float | Constant) -> float:
        if isinstance(value, Constant):
            raise TypeError("a tape holds its numbers")
        return value

    def add(self, a: Value, b: Value) -> Value:
        if isinstance(a, _Term) and not isinstance(b, _Term):
            a, b = b, a
        if isinstance(b, _Term) and b.done is None:
            a = self.value(a)
            if b.b is not None:
                return self.call(torch.addcdiv if b.divided else torch.addcmul, a, b.a, b.b, value=b.factor)
            return self.call(torch.add, a, b.a, alpha=b.factor)
        # A number comes first, as a tensor: torch takes longer with a number of Python's.
        first, second = sorted((self.value(a), self.value(b)), key=lambda x: not isinstance(x, float))
        return self.call(torch.add, first, second)

    def subtract(self, a: Value, b: Value) -> Value:
        return self.add(a, self.multiply(b, -1.0))

    def multiply(self, a: Value, b: Value) -> Value:
        if isinstance(a, float):
            a, b = b, a
        if isinstance(b, float):
            if isinstance(a, float):
                return a * b
            if isinstance(a, _Term) and a.done is None:
                return _Term(a.factor * b, a.a, a.b, a.divided)
            return _Term(b, self.value(a))  # pyright: ignore[reportArgumentType]
        if isinstance(b, _Term) and b.b is None and not isinstance(a, _Term):
            a, b = b, a
        right: Any = self.value(b)
        if isinstance(a, _Term) and a.b is None:
            return _Term(a.factor, a.a, right)
        return _Term(1.0, self.value(a), right)  # pyright: ignore[reportArgumentType]

    def function(self, name: str, *arguments: Value) -> Value:
        values: list[Any] = [self.value(x) for x in arguments]
        if name == "divide":
            return _Term(1.0, values[0], values[1], divided=True)
        if name == "sqrt":
            return self.call(_root, *values)
        if name == "asin":
            return self.call(_arcsine, *values)
        if name in ("fmax", "fmin") and isinstance(values[1], float):
            return self.call(torch.clamp_min if name == "fmax" else torch.clamp_max, *values)
        return self.call(getattr(torch, _TORCH_NAMES.get(name, name)), *values)

    def clipped_ratio(self, a: Value, b: Value) -> Value:
        return self.clip(self.function("divide", a, b), 0.0, 1.0)

    def clip(self, a: Value, low: float, high: float) -> Value:
        a = self.value(a)
        if self.careful:
            # The correlation of an input without variance, 0 / 0, counts as the middle of its range.
            a = self.call(torch.nan_to_num, a, nan=(low + high) / 2)
        return self.call(torch.clamp, a, low, high)

    def reciprocal_root(self, a: Value) -> Value:
        return self.call(_reciprocal_root, self.value(a))


def _root(x: Tensor, *, out: Tensor) -> Tensor:
    """√x; NumPy takes two thirds of torch's time, but one core alone."""
    if x.device.type != "cpu" or torch.get_num_threads() > 1:
        return torch.sqrt(x, out=out)
    np.sqrt(x.numpy(), out=out.numpy())
    return out


def _arcsine(x: Tensor, *, out: Tensor) -> Tensor:
    """Arcsin x; where NumPy has vector instructions for it, it takes a third of torch's time on one core."""
    if x.device.type != "cpu" or torch.get_num_threads() > 2 or not _numpy_has_vector_arcsine():
        return torch.asin(x, out=out)
    np.arcsin(x.numpy(), out=out.numpy())
    return out


@cache
def _numpy_has_vector_arcsine() -> bool:
    try:
        from numpy.lib.introspect import opt_func_info  # noqa: PLC0415 - NumPy 2 alone has it

        targets = opt_func_info(func_name="^arcsin$")["arcsin"]["dd"]["current"]
    except (ImportError, KeyError):
        return False
    return "AVX512" in targets or "X86_V4" in targets


def _reciprocal_root(x: Tensor, *, out: Tensor) -> Tensor:
    return torch.rsqrt(x, out=out).nan_to_num_(0.0, 0.0, 0.0)


class Tape:
    """A formula of pairs, with the map w·x + b behind it, as calls on registers.

    Register 0 is the covariance, then come the factors of the first and of the second input. ``careful``: some input
    has no variance.
    """

    def __init__(self, formula: Formula, w: float, b: float, *, careful: bool) -> None:
        planes = formula.planes
        recorder = _Recorder(1 + 2 * planes, careful=careful)
        registers = [_Register(index) for index in range(1 + 2 * planes)]
        value = formula.pair(recorder, registers[0], registers[1 : 1 + planes], registers[1 + planes :])
        value = recorder.multiply(value, w) if w != 1 else value
        result = recorder.value(recorder.add(value, b) if b != 0 else value)
        if not isinstance(result, _Register):
            raise TypeError("a formula depends on the covariance")
        self._plans = {keep: _plan(recorder.calls, len(registers), result.index, keep=keep) for keep in (False, True)}

    def __call__(
        self, k: Tensor, first: Sequence[Tensor], second: Sequence[Tensor], pool: BufferPool, *, keep: bool
    ) -> Tensor:
        """Run it on a tile; ``k`` is used up unless it is to be kept."""
        plan = self._plans[keep]
        fresh = list(pool.scratch(k.shape, plan.arrays))
        new = plan.result - 1 - len(first) - len(second)
        if new >= 0:
            fresh[new] = pool.take(k.shape)
        at = [k, *first, *second, *fresh, *pool.constants(plan.numbers)].__getitem__
        for function, arguments, options, out in plan.calls:
            function(*map(at, arguments), out=at(out), **options)
        if new >= 0 and not keep:
            pool.give(k)
        return at(plan.result)


@dataclass(frozen=True)
class _Plan:
    """Calls on places: arguments of a formula, arrays, and numbers (tensors where they come first in a call)."""

    calls: list[tuple[Callable[..., Any], tuple[int, ...], dict[str, float], int]]
    arrays: int
    numbers: tuple[tuple[float, bool], ...]
    result: int


def _plan(calls: Sequence[_Call], arguments: int, result: int, *, keep: bool) -> _Plan:
    """Choose arrays for values: a result takes the place of an argument that is not needed any more."""
    last = {x.index: number for number, (_, values, _, _) in enumerate(calls) for x in values if _is_register(x)}
    place = {index: index for index in range(arguments)}
    free: list[int] = []
    owned = set[int]() if keep else {0}
    arrays = 0
    for number, (_, values, _, target) in enumerate(calls):
        spent = [x.index for x in values if _is_register(x) and last[x.index] == number and x.index in owned]
        owned -= set(spent)
        # The first argument's memory is best, which the call has in a cache.
        free += [place[index] for index in reversed(dict.fromkeys(spent))]
        if not free:
            free.append(arguments + arrays)
            arrays += 1
        place[target] = free.pop()
        owned.add(target)
    numbers: list[tuple[float, bool]] = []

    def placed(x: Any, first: bool) -> int:
        if _is_register(x):
            return place[x.index]
        numbers.append((x, first))
        return arguments + arrays + len(numbers) - 1

    planned = [
        (function, tuple(placed(x, at == 0) for at, x in enumerate(values)), options, place[target])
        for function, values, options, target in calls
    ]
    return _Plan(planned, arrays, tuple(numbers), place[result])


def _is_register(x: Any) -> TypeGuard[_Register]:
    return isinstance(x, _Register)


#: The tape of a formula, recorded once.
tape = lru_cache(maxsize=256)(Tape)


class Eager(Arithmetic):
    """Arithmetic on tensors of single inputs, where speed does not matter."""

    def __init__(self, like: Tensor) -> None:
        self.like = like

    def number(self, value: float | Constant) -> Any:
        return value

    def function(self, name: str, *arguments: Any) -> Tensor:
        tensors = [torch.as_tensor(x, dtype=self.like.dtype, device=self.like.device) for x in arguments]
        return getattr(torch, _TORCH_NAMES.get(name, name))(*tensors)

    def clipped_ratio(self, a: Tensor, b: Tensor) -> Tensor:
        return (a / b).nan_to_num(0.0).clamp(0, 1)

    def reciprocal_root(self, a: Tensor) -> Tensor:
        return torch.where(a > 0, a.rsqrt(), 0)
