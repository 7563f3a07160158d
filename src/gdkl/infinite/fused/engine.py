"""Gram matrices by a compiled kernel: blocks of inputs whose notes fit the memory, symmetric halves, files."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gdkl.infinite.fused.program import UnsupportedError
from gdkl.infinite.gram import Work
from gdkl.numerics import chunk_slices

if TYPE_CHECKING:
    from gdkl.infinite.fused.kernel import Kernel, Notes
    from gdkl.infinite.network import InfiniteNetwork

logger = logging.getLogger(__name__)

#: Inputs of a block are a multiple of this.
STEP = 64


def fused_engine(net: InfiniteNetwork, x1: Tensor, x2: Tensor, kind: str) -> FusedEngine | None:
    """The engine for a network on a GPU; None, and one line for debugging, where there is none.

    Args:
        net: The network.
        x1: First set of inputs.
        x2: Second set.
        kind: Which kernel.
    """
    if x1.device.type != "cuda":
        return None
    try:
        if kind != "nngp":
            raise UnsupportedError("only the NNGP is compiled")
        from gdkl.infinite.fused.kernel import kernel_of  # noqa: PLC0415 - it knows all layers, which know us

        return FusedEngine(kernel_of(net, x1), x1, x2)
    except UnsupportedError as reason:
        logger.debug("no fused kernel: %s; torch computes it", reason)
        return None


class FusedEngine:
    """Computes Gram matrices of two sets of inputs.

    Args:
        kernel: The compiled network.
        x1: First set.
        x2: Second set; the same tensor where the first meets itself.
    """

    def __init__(self, kernel: Kernel, x1: Tensor, x2: Tensor) -> None:
        self.kernel, self.x1, self.x2 = kernel, x1, x2
        #: Notes of the last two blocks.
        self._kept: dict[tuple[int, int], Notes] = {}

    def rows_at_a_time(self, work: Work) -> int:
        """Inputs of a block, so that the notes of two blocks fit the memory."""
        rows = work.memory // (2 * self.kernel.bytes_per_input)
        return max(STEP, rows // STEP * STEP)

    def diagonal(self, work: Work) -> Tensor:
        """Variances of the first set behind the network."""
        blocks = chunk_slices(self.x1.shape[0], self.rows_at_a_time(work))
        parts = [self._notes(self.x1, rows).exact.to(self.x1.dtype) for rows in blocks]
        return torch.cat(parts) if parts else self.x1.new_zeros(0)

    def fill(self, into: Any, *, symmetric: bool, work: Work) -> None:
        """Compute the whole matrix.

        Args:
            into: A tensor on the device or an array on disk, shape ``(n1, n2)``.
            symmetric: Whether the matrix is symmetric, so that half of it is computed.
            work: Memory and progress.
        """
        n1, n2 = into.shape
        side, done = self.rows_at_a_time(work), 0
        on_device = isinstance(into, Tensor) and into.device == self.x1.device and into.stride(1) == 1
        if not on_device:
            # A tile on the device first, of a size that fits the memory as well.
            side = min(side, max(STEP, math.isqrt(work.memory // (2 * self.x1.dtype.itemsize)) // STEP * STEP))
        for rows in chunk_slices(n1, side):
            first = self._notes(self.x1, rows)
            for columns in chunk_slices(n2, side):
                if symmetric and columns.start < rows.start:
                    continue
                same = symmetric and columns == rows
                second = first if same else self._notes(self.x2, columns)
                if on_device:
                    mirror = into[columns, rows] if symmetric else None
                    self._block(first, second, into[rows, columns], mirror, same=same)
                else:
                    self._copied(first, second, into, rows, columns, symmetric=symmetric)
                entries = (rows.stop - rows.start) * (columns.stop - columns.start)
                done += 2 * entries if symmetric and not same else entries
                if work.progress is not None:
                    work.progress(done, n1 * n2)

    def _block(self, first: Notes, second: Notes, result: Tensor, mirror: Tensor | None, *, same: bool) -> None:
        self.kernel.pairs(first, second, result, mirror, triangle=same)
        if same:
            result.diagonal().copy_(first.exact)

    def _copied(self, first: Notes, second: Notes, into: Any, rows: slice, columns: slice, *, symmetric: bool) -> None:
        """One block by way of a tile on the device."""
        same = symmetric and rows == columns
        tile = self.x1.new_empty(rows.stop - rows.start, columns.stop - columns.start)
        self._block(first, second, tile, tile if same else None, same=same)
        target: Any = tile if isinstance(into, Tensor) else tile.cpu().numpy()
        into[rows, columns] = target
        if symmetric and not same:
            into[columns, rows] = target.T

    def _notes(self, x: Tensor, rows: slice) -> Notes:
        key = (x.data_ptr(), rows.start)
        if key not in self._kept:
            while len(self._kept) > 1:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = self.kernel.notes(x[rows])
        else:
            # The one in use longest ago goes first.
            self._kept[key] = self._kept.pop(key)
        return self._kept[key]
