"""Memory for the arrays of tiles, kept from one use to the next."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor

#: What a pool may keep for the next kernel: bytes of arrays, views of each array, numbers.
MOST_BYTES, MOST_VIEWS, MOST_NUMBERS = 64 * 2**20, 200, 1000


class BufferPool:
    """Arrays of a tile's work that are used again: fresh memory for each would cost more than the arithmetic."""

    _idle: ClassVar[list[BufferPool]] = []

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.kind = (dtype, device)
        self._free: dict[int, list[Tensor]] = {}
        self._taken: dict[int, Tensor] = {}
        self._views: dict[int, dict[Any, Any]] = {}
        self._pad = torch.empty(0, 0, dtype=dtype, device=device)
        self._scratch: dict[Any, list[Tensor]] = {}
        self._constants: dict[tuple[tuple[float, bool], ...], list[Any]] = {}

    def take(self, shape: Sequence[int]) -> Tensor:
        """An array of a shape, with anything in it."""
        size = math.prod(shape)
        # Arrays of about the same size share memory, the one given back last first: it still lies in a cache.
        waiting = self._free.setdefault(size.bit_length(), [])
        dtype, device = self.kind
        memory = waiting.pop() if waiting else torch.empty(1 << size.bit_length(), dtype=dtype, device=device)
        self._taken[memory.data_ptr()] = memory
        return self.views(memory, tuple(shape), lambda: memory[:size].view(shape))

    def give(self, array: Tensor) -> None:
        """Give an array back that is not needed any more."""
        memory = self._taken.pop(array.data_ptr(), None)
        if memory is not None:
            self._free[array.numel().bit_length()].append(memory)

    def scratch(self, shape: Sequence[int], count: int) -> Sequence[Tensor]:
        """Arrays of a shape that hold until this is called again; they are not given back."""
        found = self._scratch.get((shape, count))
        if found is None:
            size = math.prod(shape)
            if self._pad.shape[0] < count or self._pad.shape[1] < size:
                # Views of the smaller one would keep it.
                self._scratch.clear()
                rows, columns = max(count, self._pad.shape[0]), max(size, self._pad.shape[1])
                self._pad = self._pad.new_empty(rows, columns)
            found = self._scratch[shape, count] = [row[:size].view(shape) for row in self._pad[:count]]
        return found

    def views(self, array: Tensor, key: Any, make: Callable[[], Any]) -> Any:
        """Views of an array of the pool, made once: cutting a small array takes longer than computing with it."""
        if array.data_ptr() not in self._taken:
            return make()
        known = self._views.setdefault(array.data_ptr(), {})
        found = known.get(key)
        if found is None:
            if len(known) > MOST_VIEWS:
                known.clear()
            found = known[key] = make()
        return found

    def constants(self, numbers: tuple[tuple[float, bool], ...]) -> list[Any]:
        """Numbers, as tensors where asked for."""
        found = self._constants.get(numbers)
        if found is None:
            dtype, device = self.kind
            found = [torch.tensor(x, dtype=dtype, device=device) if tensor else x for x, tensor in numbers]
            self._constants[numbers] = found
        return found

    def constant(self, value: float) -> Tensor:
        """A number as a tensor."""
        return self.constants(((value, True),))[0]

    @classmethod
    @contextmanager
    def borrowed(cls, dtype: torch.dtype, device: torch.device) -> Generator[BufferPool]:
        """A pool that no other thread uses meanwhile; small kernels come many at a time and find it filled."""
        try:
            pool = cls._idle.pop()
        except IndexError:
            pool = None
        if pool is None or pool.kind != (dtype, device):
            pool = cls(dtype, device)
        try:
            yield pool
        finally:
            for memory in pool._taken.values():
                pool._free[(memory.numel() - 1).bit_length()].append(memory)
            pool._taken.clear()
            for waiting in pool._free.values():
                # In one order, so that views of the same arrays are wanted again.
                waiting.sort(key=Tensor.data_ptr)
            bytes_kept = pool._pad.nbytes + sum(m.nbytes for waiting in pool._free.values() for m in waiting)
            if bytes_kept <= MOST_BYTES and max(len(pool._constants), len(pool._scratch)) < MOST_NUMBERS:
                cls._idle.append(pool)
