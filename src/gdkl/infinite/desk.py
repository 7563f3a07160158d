"""Memory for arrays that come and go, kept from one use to the next."""

from __future__ import annotations

import math
import threading
from collections.abc import Generator, Hashable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

#: Bytes that a desk keeps for the next kernel.
DESK_BYTES = 64 * 2**20
#: Views and plans that a desk remembers before it starts anew.
REMEMBERED = 1000
_PLACE = threading.local()
_IDLE: list[Desk] = []


@dataclass
class _Buffer:
    """Memory of one size, and the shapes in which it has been used."""

    numbers: Tensor
    key: tuple[Hashable, ...]
    views: dict[tuple[int, ...], Tensor] = field(default_factory=dict[tuple[int, ...], Tensor])

    def shaped(self, shape: tuple[int, ...], size: int) -> Tensor:
        view = self.views.get(shape)
        if view is None:
            if len(self.views) > REMEMBERED:
                self.views.clear()
            view = self.views[shape] = self.numbers[:size].view(shape)
        return view


class Desk:
    """Arrays that are used again and again: fresh memory for each would cost more than the arithmetic.

    What was put back last is taken first, so that it still lies in a cache, by arrays of any shape of about the same
    size.

    Example:
        >>> desk, like = Desk(), torch.zeros(1)
        >>> array = desk.take(like, (2, 3))
        >>> desk.put(array)
        >>> desk.take(like, (2, 3)) is array
        True
    """

    def __init__(self) -> None:
        self.free: dict[tuple[Hashable, ...], list[_Buffer]] = {}
        self.lent: dict[int, _Buffer] = {}
        self.constants: dict[tuple[Any, ...], Tensor] = {}
        #: What is prepared for arrays of this desk, such as views of their parts.
        self.plans: dict[tuple[Hashable, ...], Any] = {}
        self.pads: dict[tuple[Hashable, ...], Tensor] = {}
        self.sheets: dict[tuple[Hashable, ...], tuple[Tensor, ...]] = {}
        self.bytes = 0

    def take(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        """An array of a shape, with anything in it."""
        shape = tuple(shape)
        size = math.prod(shape)
        # Arrays made in inference mode cannot be written to outside of it: the two kinds are kept apart.
        key = (size.bit_length(), like.dtype, like.device, torch.is_inference_mode_enabled())
        waiting = self.free.get(key)
        if waiting:
            buffer = waiting.pop()
            self.bytes -= buffer.numbers.nbytes
        else:
            buffer = _Buffer(like.new_empty(1 << size.bit_length()), key)
        self.lent[buffer.numbers.data_ptr()] = buffer
        return buffer.shaped(shape, size)

    def scratch(self, like: Tensor) -> tuple[Tensor, ...]:
        """Four arrays of the shape of another, which hold until this is called again; no need to put them back."""
        key = (like.shape, like.dtype, like.device, torch.is_inference_mode_enabled())
        views = self.sheets.get(key)
        if views is None:
            if len(self.sheets) > REMEMBERED:
                self.sheets.clear()
            size, kind = like.numel(), key[1:]
            pad = self.pads.get(kind)
            if pad is None or pad.shape[1] < size:
                # Views of the smaller one would keep it.
                self.sheets.clear()
                pad = self.pads[kind] = like.new_empty(4, size)
            views = self.sheets[key] = tuple(row[:size].view(like.shape) for row in pad)
        return views

    def put(self, array: Tensor) -> None:
        """Give an array back; it is kept if it came from here and there is room."""
        buffer = self.lent.pop(array.data_ptr(), None)
        if buffer is None:
            return
        if self.bytes + buffer.numbers.nbytes <= DESK_BYTES:
            self.bytes += buffer.numbers.nbytes
            self.free.setdefault(buffer.key, []).append(buffer)
        else:
            # Plans hold the arrays that they were made for.
            self.plans.clear()

    def constant(self, like: Tensor, value: float) -> Tensor:
        """A number as a tensor."""
        key = (value, like.dtype, like.device, torch.is_inference_mode_enabled())
        constant = self.constants.get(key)
        if constant is None:
            if len(self.constants) > REMEMBERED:
                self.constants.clear()
            constant = self.constants[key] = like.new_tensor(value)
        return constant

    def remember(self, key: tuple[Hashable, ...], plan: Any) -> None:
        """Keep what was prepared for some arrays."""
        if len(self.plans) > REMEMBERED:
            self.plans.clear()
        self.plans[key] = plan

    def copy(self, array: Tensor) -> Tensor:
        """A copy."""
        return self.take(array, array.shape).copy_(array)

    @classmethod
    def of_this_thread(cls) -> Desk:
        """The desk that this thread works at."""
        desk = getattr(_PLACE, "desk", None)
        if desk is None:
            desk = _PLACE.desk = cls()
        return desk

    @classmethod
    @contextmanager
    def at_hand(cls) -> Generator[Desk]:
        """Let this thread work at a desk that another has left: small kernels come many at a time.

        Example:
            >>> with Desk.at_hand() as desk:
            ...     Desk.of_this_thread() is desk
            True
        """
        before = getattr(_PLACE, "desk", None)
        try:
            desk = _IDLE.pop()
        except IndexError:
            desk = cls()
        _PLACE.desk = desk
        try:
            yield desk
        finally:
            # What was not put back, as after an error, is not ours any more.
            desk.lent.clear()
            if sum(pad.nbytes for pad in desk.pads.values()) > DESK_BYTES:
                desk.pads.clear()
                desk.sheets.clear()
            _PLACE.desk = before
            _IDLE.append(desk)
