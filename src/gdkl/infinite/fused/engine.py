"""Gram matrices by a compiled kernel: blocks of inputs whose factors fit the memory, symmetric halves, files."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gdkl.infinite.fused.kernel import Kernel, Prepared, kernel_of
from gdkl.infinite.gram import Engine, Work
from gdkl.infinite.program import Program
from gdkl.numerics import chunk_slices

#: Inputs of a block are a multiple of this.
STEP = 64


class CompiledEngine(Engine):
    """Gram matrices of two sets of inputs, the same tensor where the first meets itself, on a GPU."""

    def __init__(self, kernel: Kernel, x1: Tensor, x2: Tensor) -> None:
        self.kernel, self.x1, self.x2 = kernel, x1, x2
        #: The last two blocks of inputs.
        self._kept: dict[tuple[int, int], Prepared] = {}

    @classmethod
    def compiled(cls, program: Program, x1: Tensor, x2: Tensor) -> CompiledEngine:
        """The engine of a network, unless the network, the inputs or the device are unsupported."""
        return cls(kernel_of(program, x1), x1, x2)

    def block_rows(self, work: Work) -> int:
        """Inputs of a block, so that the factors of two blocks fit the memory."""
        rows = work.memory // (2 * self.kernel.bytes_per_input)
        return max(STEP, rows // STEP * STEP)

    def diagonal(self, work: Work) -> Tensor:
        """Variances of the first set behind the network."""
        blocks = chunk_slices(self.x1.shape[0], self.block_rows(work))
        parts = [self._prepared(self.x1, rows).exact.to(self.x1.dtype) for rows in blocks]
        return torch.cat(parts) if parts else self.x1.new_zeros(0)

    def fill(self, into: Any, *, symmetric: bool, work: Work) -> None:
        """Compute the matrix block by block, on the device in place."""
        n1, n2 = into.shape
        side, report = self.block_rows(work), work.reporter(n1 * n2)
        on_device = isinstance(into, Tensor) and into.device == self.x1.device and into.stride(1) == 1
        if not on_device:
            # A tile on the device first, of a size that fits the memory as well.
            side = min(side, max(STEP, math.isqrt(work.memory // (2 * self.x1.dtype.itemsize)) // STEP * STEP))
        for rows in chunk_slices(n1, side):
            first = self._prepared(self.x1, rows)
            for columns in chunk_slices(n2, side):
                if symmetric and columns.start < rows.start:
                    continue
                same = symmetric and columns == rows
                second = first if same else self._prepared(self.x2, columns)
                tile = into[rows, columns] if on_device else self.x1.new_empty(len(first.x), len(second.x))
                mirror = into[columns, rows] if on_device and symmetric else tile if same else None
                self.kernel.pairs(first, second, tile, mirror, triangle=same)
                if same:
                    tile.diagonal().copy_(first.exact)
                if not on_device:
                    values: Any = tile if isinstance(into, Tensor) else tile.cpu().numpy()
                    into[rows, columns] = values
                    if symmetric and not same:
                        into[columns, rows] = values.T
                report(2 * tile.numel() if symmetric and not same else tile.numel())

    def _prepared(self, x: Tensor, rows: slice) -> Prepared:
        key = (x.data_ptr(), rows.start)
        if key not in self._kept:
            while len(self._kept) > 1:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = self.kernel.prepare(x[rows])
        else:
            # The one in use longest ago goes first.
            self._kept[key] = self._kept.pop(key)
        return self._kept[key]
