"""A short way for the NNGP of networks of straight-line activations, without all pairs of pixels.

The NNGP of ReLU and its kin needs no correlation deficit: the arc-cosine function is Lipschitz in c, so
that rounding stays rounding. Here the covariance itself goes through the network, in place, in tiles that
stay in a core's cache, with pixels first and pairs last: neighbouring pixels are then long contiguous
runs. Everything that belongs to one input alone is computed once for many tiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from gdkl.infinite import gram
from gdkl.infinite.desk import Desk
from gdkl.infinite.fast_steps import Affine, Convolve, Fold, Mean, Normalise, Step, flat
from gdkl.infinite.gram import Work
from gdkl.infinite.spatial import Window, branches_differ, images_needed, no_read_out
from gdkl.numerics import chunk_slices

#: For h = (1 − c²)/2 and v = √h, (√(1 − c²) + c·arcsin c)·2/π − 1 is STRAIGHT·h plus factor·h/(v + pole) for each of
#: the POLES, to 2e-8.
STRAIGHT = 2 * -0.04423885552675984
POLES = tuple(
    (math.sqrt(2) * factor, pole / math.sqrt(2))
    for factor, pole in ((-0.284218871627854, 1.3768176901846154), (-0.9998976938272554, 4.010466380664174))
)
#: Columns of a tile: the innermost axis, whose length decides how fast arrays of either set are spread out.
COLUMNS = 32
DENSE_COLUMNS = 1024
#: Arrays of one input that the rest of a tile needs, in the order in which the network meets them.
Notes: TypeAlias = list[Tensor]


class ShortWay:
    """Tiles by the short way.

    Args:
        steps: What `program` made of the network.
        x1: First set, shape ``(n1, features)`` or ``(n1, channels, height, width)``.
        x2: Second set.
    """

    def __init__(self, steps: Sequence[Step], x1: Tensor, x2: Tensor) -> None:
        self.steps = tuple(steps)
        self.x1, self.x2 = x1, x2
        self._cores: int | None = None
        self._kept: tuple[tuple[int, int, int], _Side] | None = None

    def hands(self, work: Work) -> tuple[int, int]:
        """One tile at a time, by all cores if they are not kept busy.

        Tiles are made of many short operations, between which Python lets one thread pass at a time: threads with tiles
        of their own take longer than one alone.
        """
        if self._cores is None:
            jobs = work.jobs(self.x1.device)
            self._cores = jobs if gram.cores_meet_quickly(jobs) else 1
        return 1, self._cores

    def sides(self, work: Work) -> tuple[int, int]:
        """Rows and columns of a tile: small enough for the caches, large enough for many operations."""
        device, n2 = self.x1.device, max(1, self.x2.shape[0])
        allowed = work.memory // (gram.ARRAYS * self.x1.dtype.itemsize)
        cache = gram.CACHE_NUMBERS if device.type == "cpu" else gram.DEVICE_NUMBERS
        # Images have many small operations a tile, which larger tiles make up for.
        _, cores = self.hands(work)
        numbers = max(1, min((2 if self.x1.ndim == 2 else 4) * cores * cache, allowed))
        pairs = max(1, numbers // math.prod(self.x1.shape[2:]))
        longest = max(math.isqrt(pairs), DENSE_COLUMNS if self.x1.ndim == 2 else COLUMNS)
        columns = min(pairs, n2, longest)
        rows = pairs // columns
        # Of a symmetric matrix, what a band computes below the diagonal is lost.
        return (max(1, min(rows, n2 // 4)) if self.x1 is self.x2 else rows), columns

    def rows_at_a_time(self, work: Work) -> int:
        """Inputs of one set whose notes fit the budget."""
        pixels = math.prod(self.x1.shape[1:])
        notes = sum(1 for _ in flat(self.steps)) + 4
        return max(64, work.memory // (4 * notes * pixels * self.x1.dtype.itemsize))

    def diagonal(self, work: Work) -> Tensor:
        """Variances of the first set behind the network."""
        step = self.rows_at_a_time(work)
        parts = [self._side(self.x1, part).q for part in chunk_slices(self.x1.shape[0], step)]
        return torch.cat(parts) if parts else self.x1.new_zeros(0)

    def block(self, rows: slice, columns: slice) -> _Block:
        """What the tiles of a part of the matrix share."""
        first = self._side(self.x1, rows)
        same = self.x1 is self.x2 and rows == columns
        second = first if same else self._side(self.x2, columns)
        return _Block(self.steps, first, second)

    def _side(self, x: Tensor, rows: slice) -> _Side:
        """The notes of some inputs, kept until others are asked for."""
        key = (id(x), rows.start, rows.stop)
        if self._kept is None or self._kept[0] != key:
            # Single vectors are too little work to share among cores.
            with gram.threads(1) if x.ndim == 2 else nullcontext():
                self._kept = (key, _Side(x[rows], self.steps))
        return self._kept[1]


class _Side:
    """One set of inputs: its values and its notes, with inputs last."""

    def __init__(self, x: Tensor, steps: Sequence[Step]) -> None:
        # Vectors (n, d) stay, for a matrix product; images become (channels, H, W, n).
        self.x = x if x.ndim == 2 else x.permute(1, 2, 3, 0).contiguous()
        self.scale = 1 / x.shape[1]
        self.notes: Notes = []
        q = x.square().mean(1)
        self.q = self._follow(steps, q if x.ndim == 2 else q.permute(1, 2, 0).contiguous())
        if self.q.ndim == 3:
            raise no_read_out()
        self.zeros = any(note.numel() > 0 and float(note.min()) == 0 for note in self.notes)

    def _follow(self, steps: Sequence[Step], q: Tensor) -> Tensor:
        """Send variances through the network and note what pairs will need."""
        desk = Desk()
        for step in steps:
            if isinstance(step, Affine):
                q = step.w * q + step.b
            elif isinstance(step, Convolve):
                if q.ndim != 3:
                    raise images_needed("Conv2d")
                q = _convolve(q.clone(), step, desk)
            elif isinstance(step, Fold):
                self.notes.append(q.sqrt())
                q = step.w * (step.odd + step.even) * q + step.b
            elif isinstance(step, Normalise):
                divisor = q + (step.eps if step.eps > 0 else 1e-300)
                self.notes.append(divisor.rsqrt())
                q = q / divisor
            elif isinstance(step, Mean):
                q = q.mean(dim=(0, 1)) if q.ndim == 3 else q
            else:
                main, shortcut = self._follow(step.main, q), self._follow(step.shortcut, q)
                if main.shape != shortcut.shape:
                    raise branches_differ(main.shape[:-1], shortcut.shape[:-1])
                q = main + shortcut
        return q


class _Block:
    """A part of the matrix, of which tiles can be computed."""

    def __init__(self, steps: Sequence[Step], first: _Side, second: _Side) -> None:
        self.steps, self.first, self.second = steps, first, second
        self.careful = first.zeros or second.zeros

    def tile(self, rows: slice, columns: slice) -> Tensor:
        """The covariances of some rows with some columns of the block."""
        a, b = self.first.x, self.second.x
        steps, desk = self.steps, Desk.of_this_thread()
        if a.ndim == 2:
            left, right = a[rows], b[columns]
            k = desk.take(a, (left.shape[0], right.shape[0]))
            # The first dense layer comes with the product.
            w, offset = 1.0, 0.0
            if steps and isinstance(steps[0], Affine):
                w, offset, steps = steps[0].w, steps[0].b, steps[1:]
            start = desk.constant(a, offset).expand(k.shape)
            torch.addmm(start, left, right.T, alpha=w * self.first.scale, out=k)
        else:
            left, right = a[..., rows, None], b[..., None, columns]
            k = desk.take(a, (*a.shape[1:3], left.shape[-2], right.shape[-1]))
            torch.mul(left[0], right[0], out=k)
            for channel in range(1, a.shape[0]):
                k.addcmul_(left[channel], right[channel])
            k.mul_(self.first.scale)
        return self._follow(steps, k, _Cursor(self.first.notes, self.second.notes, rows, columns), desk)

    def take_back(self, tile: Tensor) -> None:
        """A tile whose memory is free again."""
        Desk.of_this_thread().put(tile)

    def _follow(self, steps: Sequence[Step], k: Tensor, notes: _Cursor, desk: Desk, *, keep: bool = False) -> Tensor:
        """Send covariances through the network; ``k`` is used up unless it is to be kept."""
        if keep and not (steps and isinstance(steps[0], Fold | Convolve)):
            k, keep = desk.copy(k), False
        for step in steps:
            if isinstance(step, Affine):
                _scale(k, step.w, step.b, desk)
            elif isinstance(step, Convolve):
                k = _convolve(k, step, desk, keep=keep)
            elif isinstance(step, Fold):
                k = self._fold(k, step, notes, desk, keep=keep)
            elif isinstance(step, Normalise):
                f1, f2 = notes.take()
                k.mul_(f1).mul_(f2)
            elif isinstance(step, Mean):
                if k.ndim == 4:
                    mean = torch.mean(k, dim=(0, 1), out=desk.take(k, k.shape[2:]))
                    desk.put(k)
                    k = mean
            else:
                main = self._follow(step.main, k, notes, desk, keep=True)
                shortcut = self._follow(step.shortcut, k, notes, desk)
                k = main.add_(shortcut)
                desk.put(shortcut)
            keep = False
        return k

    def _fold(self, k: Tensor, step: Fold, notes: _Cursor, desk: Desk, *, keep: bool) -> Tensor:
        """w·s·(odd·c + even·A) + b, with s = √(q1·q2) and A·π/2 = √(1 − c²) + c·arcsin c."""
        r1, r2 = notes.take()
        s, *spare = desk.scratch(k)
        torch.mul(r1, r2, out=s)
        # In float32 a fraction is as exact as an arcsine, and takes less time.
        bend = _bend if k.dtype == torch.float32 else _arc
        f = desk.take(k, k.shape) if keep else k
        w = step.w * bend(k, s, f, spare, step, desk, careful=self.careful)
        if step.b != 0:
            torch.addcmul(desk.constant(f, step.b), f, s, value=w, out=f)
        else:
            f.mul_(s if w == 1 else s.mul_(w))
        return f


def _arc(k: Tensor, s: Tensor, f: Tensor, spare: Sequence[Tensor], step: Fold, desk: Desk, *, careful: bool) -> float:
    """Put odd·c + even·A into ``f``, up to a factor that is returned."""
    c = torch.div(k, s, out=f)
    if careful:
        # A variance of zero: the correlation counts as zero, and s makes the result zero anyway.
        c.nan_to_num_(nan=0.0)
    c.clamp_(-1, 1)
    arc, A, _ = spare
    torch.asin(c, out=arc)
    torch.addcmul(desk.constant(c, 1.0), c, c, value=-1, out=A)
    _root(A, A).addcmul_(c, arc)
    if step.odd != 1:
        c.mul_(step.odd)
    c.add_(A, alpha=2 * step.even / math.pi)
    return 1.0


def _bend(k: Tensor, s: Tensor, f: Tensor, spare: Sequence[Tensor], step: Fold, desk: Desk, *, careful: bool) -> float:
    """Put (odd/even)·c + A into ``f`` by a fraction for A, and return the factor that is left."""
    # u = 1 + c, from which h = (1 − c²)/2 = u − u²/2.
    one, u = desk.constant(k, 1.0), f
    torch.addcdiv(one, k, s, out=u)
    if careful:
        u.nan_to_num_(nan=1.0)
    u.clamp_(0, 2)
    h, v, divisor = spare
    torch.addcmul(u, u, u, value=-0.5, out=h)
    _root(h, v)
    slope = step.odd / step.even
    if slope != 1:
        _scale(u, slope, 1 - slope, desk)
    u.add_(h, alpha=STRAIGHT)
    (first, near), (second, far) = POLES
    torch.add(desk.constant(v, near), v, out=divisor)
    u.addcdiv_(h, divisor, value=first)
    torch.add(desk.constant(v, far), v, out=v)
    u.addcdiv_(h, v, value=second)
    return step.even


def _root(x: Tensor, out: Tensor) -> Tensor:
    """√x; NumPy's takes two thirds of torch's time, but one core alone."""
    if x.device.type != "cpu" or torch.get_num_threads() > 1:
        return torch.sqrt(x, out=out)
    np.sqrt(x.numpy(), out=out.numpy())
    return out


class _Cursor:
    """Reads the notes of both sides in step, cut to a tile."""

    def __init__(self, first: Notes, second: Notes, rows: slice, columns: slice) -> None:
        self.pairs = zip(first, second, strict=True)
        self.rows, self.columns = rows, columns

    def take(self) -> tuple[Tensor, Tensor]:
        a, b = next(self.pairs)
        return a[..., self.rows, None], b[..., None, self.columns]


def _scale(k: Tensor, w: float, b: float, desk: Desk) -> None:
    """w·k + b in one pass, in place."""
    if b == 0:
        k.mul_(w)
    else:
        torch.add(desk.constant(k, b), k, alpha=w, out=k)


def _convolve(k: Tensor, step: Convolve, desk: Desk, *, keep: bool = False) -> Tensor:
    """W · mean over the window + b, for pixels in the first two axes; ``k`` is used up unless it is to be kept."""
    window, start = step.window, k
    pads = window.pads(k.shape[0], k.shape[1])
    if window.mode == "circular":
        for axis, (low, high) in enumerate(pads):
            if low or high:
                index = torch.arange(-low, k.shape[axis] + high, device=k.device) % k.shape[axis]
                k = k.index_select(axis, index)
        pads = ((0, 0), (0, 0))
    for axis in (0, 1):
        total = _slide(k, axis, window, pads[axis], desk)
        if total is not k and not (keep and k is start):
            desk.put(k)
        k = total
    if keep and k is start:
        k = desk.copy(k)
    _scale(k, step.w / (window.size[0] * window.size[1]), step.b, desk)
    return k


@dataclass(frozen=True)
class _Tap:
    """One offset of a window along an axis: outputs ``first`` to ``last`` read inputs from ``start`` on."""

    first: int
    last: int
    start: int


@lru_cache(maxsize=256)
def _taps(length: int, size: int, stride: int, pads: tuple[int, int]) -> tuple[int, tuple[_Tap, ...]]:
    """How many outputs there are, and the taps that lie inside the image for any of them, widest first."""
    low, high = pads
    count = (length + low + high - size) // stride + 1
    taps: list[_Tap] = []
    for tap in range(size):
        # Output i of this tap is input i·stride + tap − low.
        first = max(0, -((tap - low) // stride))
        last = min(count, (length - 1 + low - tap) // stride + 1)
        if last > first:
            taps.append(_Tap(first, last, first * stride + tap - low))
    return count, tuple(sorted(taps, key=lambda tap: tap.first - tap.last))


def _slide(k: Tensor, axis: int, window: Window, pads: tuple[int, int], desk: Desk) -> Tensor:
    """Sums over a window along one axis, with zeros outside."""
    size, stride = window.size[axis], window.stride[axis]
    if size == 1 and stride == 1 and pads == (0, 0):
        return k
    count, taps = _taps(k.shape[axis], size, stride, pads)
    shape = list(k.shape)
    shape[axis] = count
    total = desk.take(k, shape)
    # Cutting the arrays to pieces takes longer than adding small ones: it is done once for the same memory.
    key = (k.data_ptr(), total.data_ptr(), k.shape, axis, size, stride, pads, k.dtype)
    plan: list[Sum] | None = desk.plans.get(key)
    if plan is None:
        plan = _plan(k, total, axis, stride, taps)
        desk.remember(key, plan)
    for out, first, second in plan:
        if first is None:
            out.zero_()
        elif second is None:
            out.copy_(first)
        else:
            torch.add(first, second, out=out)
    return total


#: Out ← first + second; where the second is missing, out ← first; where both are, out ← 0.
Sum: TypeAlias = tuple[Tensor, Tensor | None, Tensor | None]


def _plan(k: Tensor, total: Tensor, axis: int, stride: int, taps: Sequence[_Tap]) -> list[Sum]:
    """The sums over parts of arrays that make up a sum over a window."""
    count = total.shape[axis]

    def read(start: int, outputs: int) -> Tensor:
        if stride == 1:
            return k.narrow(axis, start, outputs)
        cut = slice(start, start + (outputs - 1) * stride + 1, stride)
        return k[cut] if axis == 0 else k[:, cut]

    if not taps:
        # Every window lies in the padding.
        return [(total, None, None)]
    widest, rest = taps[0], taps[1:]
    plan: list[Sum] = []
    if widest.last - widest.first < count:
        plan.append((total, None, None))
        rest = taps
    elif not rest:
        plan.append((total, read(widest.start, count), None))
    else:
        # The widest two taps make the sum in one pass; where the second does not reach, the first is copied.
        second, rest = rest[0], rest[1:]
        reach = second.last - second.first
        inside = read(widest.start + second.first * stride, reach)
        plan.append((total.narrow(axis, second.first, reach), inside, read(second.start, reach)))
        if second.first > 0:
            plan.append((total.narrow(axis, 0, second.first), read(widest.start, second.first), None))
        if second.last < count:
            outside = count - second.last
            edge = read(widest.start + second.last * stride, outside)
            plan.append((total.narrow(axis, second.last, outside), edge, None))
    for tap in rest:
        part = total.narrow(axis, tap.first, tap.last - tap.first)
        plan.append((part, part, read(tap.start, tap.last - tap.first)))
    return plan
