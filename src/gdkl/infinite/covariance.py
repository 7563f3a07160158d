"""The CPU engine for the NNGP of networks of piecewise linear activations, without all pairs of pixels.

The NNGP of piecewise linear activations needs no correlation deficit: the arc-cosine function is Lipschitz in c, so
that rounding stays rounding. Here the covariance itself goes through a simplified program, in place, in tiles that stay
in a core's cache, with pixels first and pairs last: neighbouring pixels are then long contiguous runs. Everything that
belongs to one input alone is computed once for many tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, zip_longest
from typing import Any, TypeAlias

import torch
from torch import Tensor

from gdkl.infinite.buffers import BufferPool
from gdkl.infinite.formulas import ArcCosine, ArcFraction, ArcSine, Normalised
from gdkl.infinite.gram import Tile, TiledEngine, Work, threads
from gdkl.infinite.program import Affine, Apply, Convolve, Op, Program, Save, Sum, Swap, UnsupportedError, simplified
from gdkl.infinite.spatial import Pads, Window
from gdkl.infinite.tape import Eager, tape
from gdkl.numerics import chunk_slices

#: Columns of a tile: the innermost axis, whose length decides how fast arrays of either set are spread out.
COLUMNS = 32
DENSE_COLUMNS = 1024
#: Numbers that an operation computes in the time that it takes to call it.
SHORT_CALL = 2**14


class CovarianceEngine(TiledEngine):
    """Tiles of covariances, unsupported for networks that need the precise recursion."""

    shares_cores = True

    def __init__(self, program: Program, x1: Tensor, x2: Tensor) -> None:
        arc_cosine = ArcFraction if x1.dtype == torch.float32 else ArcSine
        # Dividing by next to nothing takes the care of the precise recursion.
        self.ops = simplified(program, x1.shape[1:], arc_cosine, least_eps=torch.finfo(x1.dtype).tiny)
        self.x1, self.x2 = x1, x2
        for op in self.ops:
            if isinstance(op, Apply) and not isinstance(op.formula, ArcCosine | Normalised):
                raise UnsupportedError("only piecewise linear activations are exact enough without the deficit")
        self._kept: tuple[tuple[int, int, int], _Inputs] | None = None

    def sides(self, work: Work) -> tuple[int, int]:
        """Rows and columns of a tile: small enough for the caches, large enough for many operations."""
        n2 = max(1, self.x2.shape[0])
        # Images have many small operations per tile, which larger tiles make up for.
        times = (2 if self.x1.ndim == 2 else 4) * work.jobs(self.x1.device)
        numbers = work.tile_numbers(self.x1.dtype, self.x1.device, times=times)
        pairs = max(1, numbers // math.prod(self.x1.shape[2:]))
        longest = max(math.isqrt(pairs), DENSE_COLUMNS if self.x1.ndim == 2 else COLUMNS)
        columns = min(pairs, n2, longest)
        rows = pairs // columns
        if self.x1 is self.x2:
            # What a band of a symmetric matrix computes below the diagonal is lost; short calls cost more than that.
            least = SHORT_CALL // (columns * math.prod(self.x1.shape[2:]))
            rows = max(1, min(rows, max(n2 // 4, least)))
        return rows, columns

    def block_rows(self, work: Work) -> int:
        """Inputs of one set whose factors fit the budget."""
        pixels = math.prod(self.x1.shape[1:])
        return max(64, work.memory // (4 * (len(self.ops) + 4) * pixels * self.x1.dtype.itemsize))

    def diagonal(self, work: Work) -> Tensor:
        """Variances of the first set behind the network."""
        parts = [self._inputs(self.x1, part).q for part in chunk_slices(self.x1.shape[0], self.block_rows(work))]
        return torch.cat(parts) if parts else self.x1.new_zeros(0)

    def block(self, rows: slice, columns: slice) -> Tile:
        """What the tiles of a part of the matrix share."""
        first = self._inputs(self.x1, rows)
        same = self.x1 is self.x2 and rows == columns
        return _Block(self.ops, first, first if same else self._inputs(self.x2, columns))

    def _inputs(self, x: Tensor, rows: slice) -> _Inputs:
        """Some inputs with their factors, kept until others are asked for."""
        key = (id(x), rows.start, rows.stop)
        if self._kept is None or self._kept[0] != key:
            with threads(1):
                self._kept = (key, _Inputs(x[rows], self.ops))
        return self._kept[1]


class _Inputs:
    """A set of inputs: values, factors for each formula in order, and variances, with inputs last."""

    def __init__(self, x: Tensor, ops: Sequence[Op]) -> None:
        # Vectors (n, d) stay, for a matrix product; images become (channels, H, W, n).
        self.x = x if x.ndim == 2 else x.permute(1, 2, 3, 0).contiguous()
        self.factors: list[Sequence[Tensor]] = []
        q = x.square().sum(1)
        with BufferPool.borrowed(x.dtype, x.device) as pool:
            self.q = self._follow(ops, q if x.ndim == 2 else q.permute(1, 2, 0).contiguous(), pool).clone()
        self.has_zeros = any(factor.numel() > 0 and float(factor.min()) == 0 for (factor, *_) in self.factors)

    def _follow(self, ops: Sequence[Op], q: Tensor, pool: BufferPool) -> Tensor:
        """Send variances through the program and keep what pairs will need."""
        machine, stack = Eager(q), list[Tensor]()
        for op in ops:
            if isinstance(op, Affine):
                q = op.w * q + op.b
            elif isinstance(op, Convolve):
                q = _convolve(q, op, pool, keep=True)
            elif isinstance(op, Apply):
                self.factors.append(op.formula.factors(machine, q))
                q = op.formula.variance(machine, q, self.factors[-1])
            elif isinstance(op, Sum):
                q = q.sum(dim=(0, 1))
            elif isinstance(op, Save):
                stack.append(q)
            elif isinstance(op, Swap):
                q, stack[-1] = stack[-1], q
            else:
                q = q + stack.pop()
        return q


@dataclass(frozen=True)
class _Block:
    """A part of the matrix, of which tiles can be computed."""

    ops: Sequence[Op]
    first: _Inputs
    second: _Inputs

    def __call__(self, rows: slice, columns: slice, use: Callable[[Tensor], Any]) -> Any:
        with BufferPool.borrowed(self.first.x.dtype, self.first.x.device) as pool:
            return use(self._tile(rows, columns, pool))

    def _tile(self, rows: slice, columns: slice, pool: BufferPool) -> Tensor:
        """The covariances of some rows with some columns of the block."""
        a, b, ops = self.first.x, self.second.x, self.ops
        if a.ndim == 2:
            left, right = a[rows], b[columns]
            k = pool.take((left.shape[0], right.shape[0]))
            # The first dense layer comes with the product.
            w, term = 1.0, 0.0
            if ops and isinstance(ops[0], Affine):
                w, term, ops = float(ops[0].w), float(ops[0].b), ops[1:]
            torch.addmm(pool.constant(term).expand(k.shape), left, right.T, alpha=w, out=k)
        else:
            left, right = a[..., rows, None], b[..., None, columns]
            k = pool.take((*a.shape[1:3], left.shape[-2], right.shape[-1]))
            torch.mul(left[0], right[0], out=k)
            for channel in range(1, a.shape[0]):
                k.addcmul_(left[channel], right[channel])
        return self._follow(ops, k, rows, columns, pool)

    def _follow(self, ops: Sequence[Op], k: Tensor, rows: slice, columns: slice, pool: BufferPool) -> Tensor:
        """Send covariances through the program; a map on the stack is never written to."""
        careful = self.first.has_zeros or self.second.has_zeros
        factors = zip(self.first.factors, self.second.factors, strict=True)
        stack: list[Tensor] = []
        merged: Op | None = None
        for op, following in zip_longest(ops, ops[1:]):
            keep = any(k is kept for kept in stack)
            if op is merged:
                merged = None
            elif isinstance(op, Affine):
                k = _scaled(k, float(op.w), float(op.b), pool, keep=keep)
            elif isinstance(op, Convolve):
                k = _convolve(k, op, pool, keep=keep)
            elif isinstance(op, Apply):
                first, second = next(factors)
                w, b = 1.0, 0.0
                if isinstance(following, Affine):
                    # The dense layer behind an activation comes with its last pass.
                    w, b, merged = float(following.w), float(following.b), following
                k = tape(op.formula, w, b, careful=careful)(
                    k,
                    [factor[..., rows, None] for factor in first],
                    [factor[..., None, columns] for factor in second],
                    pool,
                    keep=keep,
                )
            elif isinstance(op, Sum):
                total = torch.sum(k, dim=(0, 1), out=pool.take(k.shape[2:]))
                k = _replaced(k, total, pool, keep=keep)
            elif isinstance(op, Save):
                stack.append(k)
            elif isinstance(op, Swap):
                k, stack[-1] = stack[-1], k
            else:
                other = stack.pop()
                own = not any(other is kept for kept in stack)
                if own and other is not k:
                    other.add_(k)
                    k = _replaced(k, other, pool, keep=any(k is kept for kept in stack))
                else:
                    k = torch.add(k, other, out=pool.take(k.shape))
        return k


def _replaced(old: Tensor, new: Tensor, pool: BufferPool, *, keep: bool) -> Tensor:
    """A new map in the place of an old one, whose memory is free unless it is to be kept."""
    if not keep:
        pool.give(old)
    return new


def _scaled(k: Tensor, w: float, b: float, pool: BufferPool, *, keep: bool = False) -> Tensor:
    """w·k + b in one pass."""
    out = pool.take(k.shape) if keep else k
    return torch.mul(k, w, out=out) if b == 0 else torch.add(pool.constant(b), k, alpha=w, out=out)


def _convolve(k: Tensor, op: Convolve, pool: BufferPool, *, keep: bool) -> Tensor:
    """W · mean over the window + b, for pixels in the first two axes; ``k`` is used up unless it is to be kept."""
    window = op.window
    pads = _pads(window, k.shape[0], k.shape[1])
    if window.mode == "circular":
        for axis, (low, high) in enumerate(pads):
            if low or high:
                index = torch.arange(-low, k.shape[axis] + high, device=k.device) % k.shape[axis]
                k, keep = _replaced(k, k.index_select(axis, index), pool, keep=keep), False
        pads = ((0, 0), (0, 0))
    for axis in (0, 1):
        total = _slide(k, axis, window, pads[axis], pool)
        if total is not k:
            k, keep = _replaced(k, total, pool, keep=keep), False
    return _scaled(k, float(op.w) / (window.size[0] * window.size[1]), float(op.b), pool, keep=keep)


@lru_cache(maxsize=256)
def _pads(window: Window, height: int, width: int) -> Pads:
    return window.pads(height, width)


#: Out ← first + second; where the second is missing, out ← first; where both are, out ← 0.
_Piece: TypeAlias = tuple[Tensor, Tensor | None, Tensor | None]


def _slide(k: Tensor, axis: int, window: Window, pads: tuple[int, int], pool: BufferPool) -> Tensor:
    """Sums over a window along one axis, with zeros outside."""
    size, stride = window.size[axis], window.stride[axis]
    if size == 1 and stride == 1 and pads == (0, 0):
        return k
    shape = list(k.shape)
    shape[axis] = (shape[axis] + sum(pads) - size) // stride + 1
    total = pool.take(shape)
    key = (total.data_ptr(), tuple(k.shape), axis, size, stride, pads)
    pieces: list[_Piece] = pool.views(k, key, lambda: _pieces(k, total, axis, size, stride, pads[0]))
    for out, first, second in pieces:
        if first is None:
            out.zero_()
        elif second is None:
            out.copy_(first)
        else:
            torch.add(first, second, out=out)
    return total


def _pieces(k: Tensor, total: Tensor, axis: int, size: int, stride: int, low: int) -> list[_Piece]:
    """The sums that make up a sum over a window, for runs of outputs whose windows cross the border alike."""
    pieces: list[_Piece] = []
    length, start = k.shape[axis], 0
    inside = [tuple(0 <= i * stride - low + tap < length for tap in range(size)) for i in range(total.shape[axis])]
    for taps, run in groupby(inside):
        count = len(list(run))
        out = total.narrow(axis, start, count)
        reads: list[Tensor] = []
        for tap in (tap for tap in range(size) if taps[tap]):
            first = start * stride - low + tap
            cut = slice(first, first + (count - 1) * stride + 1, stride)
            reads.append(k[cut] if axis == 0 else k[:, cut])
        pieces.append((out, reads[0] if reads else None, reads[1] if len(reads) > 1 else None))
        pieces += [(out, out, more) for more in reads[2:]]
        start += count
    return pieces
