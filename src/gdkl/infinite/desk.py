"""Memory for arrays that come and go, kept from one use to the next."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

#: Bytes that a desk keeps for the next kernel.
DESK_BYTES = 64 * 2**20
_PLACE = threading.local()


class Desk:
    """Arrays that are used again and again: fresh memory for each would cost more than the arithmetic.

    Example:
        >>> desk, like = Desk(), torch.zeros(1)
        >>> array = desk.take(like, (2, 3))
        >>> desk.put(array)
        >>> desk.take(like, (2, 3)) is array
        True
    """

    def __init__(self) -> None:
        self.free: dict[tuple[Any, ...], list[Tensor]] = {}
        self.constants: dict[tuple[Any, ...], Tensor] = {}
        self.bytes = 0

    def take(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        """An array of a shape, with anything in it."""
        # Arrays made in inference mode cannot be written to outside of it: the two kinds are kept apart.
        waiting = self.free.get((*shape, like.dtype, like.device, torch.is_inference_mode_enabled()))
        if not waiting:
            return like.new_empty(tuple(shape))
        array = waiting.pop()
        self.bytes -= array.nbytes
        return array

    def put(self, array: Tensor) -> None:
        """Give an array back; it is kept if there is room."""
        if self.bytes + array.nbytes <= DESK_BYTES:
            self.bytes += array.nbytes
            key = (*array.shape, array.dtype, array.device, array.is_inference())
            self.free.setdefault(key, []).append(array)

    def constant(self, like: Tensor, value: float) -> Tensor:
        """A number as a tensor."""
        key = (value, like.dtype, like.device, torch.is_inference_mode_enabled())
        if key not in self.constants:
            if len(self.constants) > 1000:
                self.constants.clear()
            self.constants[key] = like.new_tensor(value)
        return self.constants[key]

    def copy(self, array: Tensor) -> Tensor:
        """A copy."""
        return self.take(array, array.shape).copy_(array)

    @classmethod
    def of_this_thread(cls) -> Desk:
        """The desk that this thread has used before: small kernels come many at a time."""
        desk = getattr(_PLACE, "desk", None)
        if desk is None:
            desk = _PLACE.desk = cls()
        return desk
