"""Windows on images: paddings, strides, and means over a window for arrays of pixels and of pixel pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gdkl.infinite.state import Pixels, State
from gdkl.numerics import DataError, OptionError

Padding: TypeAlias = int | tuple[int, int] | Literal["same", "valid"]
PaddingMode: TypeAlias = Literal["zeros", "circular"]
#: Rows or columns before and after the image, for height and width.
Pads: TypeAlias = tuple[tuple[int, int], tuple[int, int]]


def two_sizes(value: Any, name: str, *, least: int) -> tuple[int, int]:
    """A size for height and width, from one whole number or two."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    pair = tuple(value) if isinstance(value, Sequence) else (value, value)
    whole = all(isinstance(size, int | np.integer) and not isinstance(size, bool) for size in pair)
    if len(pair) != 2 or not whole or min(pair) < least:
        raise OptionError(f"{name} must be a whole number of at least {least}, or two of them; got {value!r}.")
    return int(pair[0]), int(pair[1])


def padding_of_spec(padding: Any, mode: Any) -> tuple[Any, Any]:
    """Padding and its mode from the words of a spec: SAME, VALID, CIRCULAR, or pixels on both sides."""
    words = {"SAME": ("same", "zeros"), "VALID": ("valid", "zeros"), "CIRCULAR": ("same", "circular")}
    if not isinstance(padding, str):
        return padding, mode
    if padding not in words:
        raise OptionError(f"padding {padding!r} is not known: use {', '.join(words)} or two numbers.")
    return words[padding]


def images_needed(layer: str) -> DataError:
    """The error of a layer that was given vectors."""
    return DataError(f"{layer} needs images of shape (n, channels, height, width); it got vectors.")


def branches_differ(main: Sequence[int], shortcut: Sequence[int]) -> DataError:
    """The error of a residual whose branches do not fit."""
    return DataError(
        f"the branches of a residual must end in images of one size; got {tuple(main)} and {tuple(shortcut)}."
    )


def no_read_out() -> DataError:
    """The error of a network that ends in an image."""
    return DataError("the network gives an image for an image: end it with Flatten() or GlobalAvgPool2d().")


@dataclass(frozen=True)
class Window:
    """A window that slides over an image; padding ``"same"`` has as many as steps fit, its smaller half first."""

    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] | Literal["same", "valid"]
    mode: PaddingMode

    @classmethod
    def read(cls, size: Any, stride: Any, padding: Any, mode: Any) -> Window:
        """Check a layer's arguments."""
        if mode not in ("zeros", "circular"):
            raise OptionError(f"padding_mode={mode!r} is not known: use 'zeros' or 'circular'.")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise OptionError(f"padding={padding!r} is not known: use 'same', 'valid' or a number of pixels.")
        else:
            padding = two_sizes(padding, "padding", least=0)
            padding = "valid" if padding == (0, 0) else padding
        return cls(two_sizes(size, "kernel_size", least=1), two_sizes(stride, "stride", least=1), padding, mode)

    def spec(self) -> dict[str, Any]:
        """Strides and padding in the words of a spec."""
        strides = list(self.stride)
        if isinstance(self.padding, str):
            circular = self.padding == "same" and self.mode == "circular"
            return {"strides": strides, "padding": "CIRCULAR" if circular else self.padding.upper()}
        mode = {} if self.mode == "zeros" else {"padding_mode": self.mode}
        return {"strides": strides, "padding": list(self.padding), **mode}

    def pads(self, height: int, width: int) -> Pads:
        """Padding of an image of this size, which must then hold a window."""
        pads: list[tuple[int, int]] = []
        for axis, length in enumerate((height, width)):
            size, stride = self.size[axis], self.stride[axis]
            if self.padding == "same":
                total = max((-(-length // stride) - 1) * stride + size - length, 0)
                low, high = total // 2, total - total // 2
            elif self.padding == "valid":
                low, high = 0, 0
            else:
                low = high = self.padding[axis]
            if length + low + high < size:
                raise DataError(
                    f"a window of {self.size[0]} x {self.size[1]} does not fit images of {height} x {width}: "
                    "use a smaller window, larger images, or padding='same'."
                )
            pads.append((low, high))
        return pads[0], pads[1]

    def outputs(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of what the window makes of an image."""
        (top, bottom), (left, right) = self.pads(height, width)
        rows = (height + top + bottom - self.size[0]) // self.stride[0] + 1
        return rows, (width + left + right - self.size[1]) // self.stride[1] + 1

    def pad(self, state: State) -> State:
        """The state on the padded image, where pixels outside have variance zero or wrap around."""
        pads = self.pads(*state.q1.shape[-2:])
        if pads == ((0, 0), (0, 0)):
            return state
        both = [*pads, *pads] if state.pixels is Pixels.PAIRS else [*pads]

        def around(array: Tensor | None, sides: Sequence[tuple[int, int]], outside: float) -> Tensor | None:
            return None if array is None else _pad(array, sides, self.mode, outside)

        q1, q2 = state.variances(lambda q: _pad(q, pads, self.mode, 0.0))
        return State(
            q1=q1,
            q2=q2,
            t=_pad(state.t, both, self.mode, 1.0),
            u=around(state.u, both, 1.0),
            k=around(state.k, both, 0.0),
            ntk=around(state.ntk, both, 0.0),
            matched=state.matched,
            pixels=state.pixels,
        )

    def mean(self, array: Tensor) -> Tensor:
        """Mean over the window of an array of pixels, shape ``(..., H, W)``, already padded."""
        return self._sums(array, ((-2,), (-1,))) / (self.size[0] * self.size[1])

    def mean_along(self, array: Tensor) -> Tensor:
        """Mean over windows that move together, shape ``(..., H, W, H, W)``: taps (p + o, p' + o)."""
        return self._sums(array, ((-4, -2), (-3, -1))) / (self.size[0] * self.size[1])

    def mean_across(self, array: Tensor) -> Tensor:
        """Mean over all pairs of taps of two windows, shape ``(..., H, W, H, W)``: (p + o, p' + o')."""
        return self._sums(array, ((-4,), (-3,), (-2,), (-1,))) / (self.size[0] * self.size[1]) ** 2

    def _sums(self, array: Tensor, groups: Sequence[tuple[int, ...]]) -> Tensor:
        """Sums over windows that slide along the axes of a group together, rows and columns in turn."""
        for number, axes in enumerate(groups):
            array = _windows(array, axes, self.size[number % 2], self.stride[number % 2])
        return array


def _windows(array: Tensor, axes: tuple[int, ...], size: int, stride: int) -> Tensor:
    """Sums over windows that slide along the given axes together."""

    def part(tap: int) -> Tensor:
        index = [slice(None)] * array.ndim
        for axis in axes:
            count = (array.shape[axis] - size) // stride + 1
            index[axis] = slice(tap, tap + (count - 1) * stride + 1, stride)
        return array[tuple(index)]

    return reduce(torch.add, map(part, range(size)))


def _pad(array: Tensor, sides: Sequence[tuple[int, int]], mode: PaddingMode, outside: float) -> Tensor:
    """Pad the last axes."""
    if mode == "zeros":
        flat = [size for pair in reversed(sides) for size in pair]
        return functional.pad(array, flat, value=outside)
    for axis, (low, high) in zip(range(-len(sides), 0), sides, strict=True):
        length = array.shape[axis]
        index = torch.arange(-low, length + high, device=array.device) % length
        array = array.index_select(axis, index)
    return array
