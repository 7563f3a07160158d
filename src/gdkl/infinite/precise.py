"""The precise engine: whole states through a program, for every layer, both kinds, and gradients.

Its formulas map correlation deficits (see `state`) to deficits without cancellation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from gdkl.infinite.arrays import Inputs
from gdkl.infinite.gram import ARRAYS, Tile, TiledEngine, Work
from gdkl.infinite.program import Activate, Add, Affine, Convolve, Flatten, Normalise, Op, Pool, Program, Save, Swap
from gdkl.infinite.spatial import branches_differ, images_needed, no_read_out
from gdkl.infinite.state import Pixels, State, image_state, vector_state
from gdkl.infinite.sums import affine, flattened, pooled, weighted_sum
from gdkl.numerics import OptionError, chunk_slices, require_memory, tensor_bytes

#: Which kernel: the prior covariance of the network, or the neural tangent kernel.
Kind: TypeAlias = Literal["nngp", "ntk"]


def known_kind(kind: Kind) -> Kind:
    """A kind of kernel, refused if there is none of that name."""
    if kind not in get_args(Kind):
        raise OptionError(f"kind={kind!r} is not known: use 'nngp' or 'ntk'.")
    return kind


@dataclass(frozen=True)
class PreciseEngine(TiledEngine):
    """Gram matrices by the precise recursion."""

    program: Program
    x1: Tensor
    x2: Tensor
    kind: Kind

    def sides(self, work: Work) -> tuple[int, int]:
        """Rows and columns of a tile."""
        side = work.side(*_numbers_per_pair(self.program, self.x1), self.x1.device)
        return side, side

    def diagonal(self, work: Work) -> Tensor:
        """The diagonal of the matrix of the first set with itself."""
        rows = self.sides(work)[0] ** 2
        parts = [
            matched_kernel(self.program, self.x1[part], None, self.kind)
            for part in chunk_slices(self.x1.shape[0], rows)
        ]
        return torch.cat(parts) if parts else self.x1.new_zeros(0)

    def block(self, rows: slice, columns: slice) -> Tile:
        """A part of the matrix."""
        return partial(_tile, self.program, self.x1[rows], self.x2[columns], self.kind)


def _tile(
    program: Program, x1: Tensor, x2: Tensor, kind: Kind, rows: slice, columns: slice, use: Callable[[Tensor], Any]
) -> Any:
    """A tile of a part of the matrix, in any process."""
    return use(_read_out(_run(program, x1[rows], x2[columns], kind), kind))


def differentiable_kernel(program: Program, inputs: Inputs, kind: Kind) -> Tensor:
    """The whole matrix at once, for autograd."""
    result = _read_out(_run(program, inputs.x1, inputs.x2, kind, gradient=True), kind)
    if inputs.x2 is not None:
        return result
    upper = result.triu(1)
    return upper + upper.T + torch.diag(matched_kernel(program, inputs.x1, None, kind, gradient=True))


def matched_kernel(program: Program, x1: Tensor, x2: Tensor | None, kind: Kind, *, gradient: bool = False) -> Tensor:
    """Covariances of row i of one set with row i of the other, or with itself."""
    state = _run(program, x1, x2, kind, matched=True, gradient=gradient)
    return state.q1 if x2 is None and kind == "nngp" else _read_out(state, kind)


def _read_out(state: State, kind: Kind) -> Tensor:
    if kind == "nngp":
        return state.covariance()
    if state.ntk is None:
        raise RuntimeError("the state carries no NTK although it was asked for")
    return state.ntk


def _numbers_per_pair(program: Program, x: Tensor) -> tuple[int, torch.dtype]:
    """Numbers of an array of one pair of inputs, and their precision."""
    pixels = math.prod(x.shape[2:])
    return (pixels**2, torch.float64) if program.needs_pairs else (pixels, x.dtype)


def _run(
    program: Program, x1: Tensor, x2: Tensor | None, kind: Kind, *, matched: bool = False, gradient: bool = False
) -> State:
    """Start a state on the inputs and send it through the network."""
    dtype, pairs = x1.dtype, program.needs_pairs
    if gradient:
        _require_whole(program, x1, x2, matched=matched)
    if pairs:
        # Pooling takes differences of covariances, for which half of float32's digits are not enough.
        x1, x2 = x1.double(), None if x2 is None else x2.double()
    ntk = kind == "ntk"
    two_sided = ntk or program.two_sided
    if x1.ndim == 2:
        state = vector_state(x1, x2, matched=matched, two_sided=two_sided, ntk=ntk, gradient=gradient)
    else:
        state = image_state(x1, x2, matched=matched, pairs=pairs, two_sided=two_sided, ntk=ntk, gradient=gradient)
    stack: list[State] = []
    for op, ahead in zip(program.ops, program.pairs_ahead(), strict=True):
        if isinstance(op, Save):
            stack.append(state)
        elif isinstance(op, Swap):
            state, stack[-1] = stack[-1], state
        elif isinstance(op, Add):
            state = _add(stack.pop(), state)
        else:
            state = _step(op, state)
        if not ahead:
            # Behind the last pooling the same pixels are enough.
            state = state.same_pixels()
    if state.pixels is not Pixels.NONE:
        raise no_read_out()
    if state.t.dtype == dtype:
        return state
    return state.map_pairs(lambda array: array.to(dtype), q1=state.q1.to(dtype), q2=state.q2.to(dtype))


def _require_whole(program: Program, x1: Tensor, x2: Tensor | None, *, matched: bool) -> None:
    """Refuse work that cannot be cut into tiles, as gradients need it at once, if it does not fit."""
    numbers, dtype = _numbers_per_pair(program, x1)
    Work().side(numbers, dtype, x1.device)
    n1, n2 = x1.shape[0], (x1 if x2 is None else x2).shape[0]
    require_memory(
        tensor_bytes(n1 if matched else n1 * n2, numbers, ARRAYS, dtype=dtype),
        what=f"a kernel of {n1} inputs with gradients" if matched else f"a kernel of {n1} x {n2} with gradients",
        remedy="Take fewer inputs at a time, or detach them and use torch.no_grad().",
        device=x1.device,
    )


def _step(op: Op, state: State) -> State:
    """The state behind an operation, with the own pixel pairs of either set taken along."""
    new = _applied(op, state)
    if state.own1 is None or state.own2 is None or new.pixels is not Pixels.PAIRS:
        return new
    own1 = _step(op, state.own1)
    return replace(new, own1=own1, own2=own1 if state.own2 is state.own1 else _step(op, state.own2))


def _applied(op: Op, state: State) -> State:
    if isinstance(op, Activate):
        return op.function.propagate(state)
    if isinstance(op, Affine):
        return _dense(state, op)
    if isinstance(op, Convolve):
        return _convolved(state, op)
    if isinstance(op, Normalise):
        return _normalised(state, op.eps)
    if isinstance(op, Flatten):
        return flattened(state)
    if isinstance(op, Pool):
        return pooled(state, op)
    raise TypeError(f"{op} is not an operation that layers emit")


def _dense(state: State, op: Affine | Convolve) -> State:
    new = affine(state, op.w, op.b)
    return new if state.ntk is None else replace(new, ntk=new.covariance() + op.w * state.ntk)


def _convolved(state: State, op: Convolve) -> State:
    window, w, b = op.window, op.w, op.b
    if state.pixels is Pixels.NONE:
        raise images_needed("Conv2d")
    pairs = state.pixels is Pixels.PAIRS
    if window.size == (1, 1) and window.padding in ("same", "valid"):
        # A filter of one pixel sums nothing up: pixels are left out, and the rest is a dense layer.
        rows, columns = window.stride

        def thinned(array: Tensor) -> Tensor:
            array = array[..., ::rows, ::columns]
            return array[..., ::rows, ::columns, :, :] if pairs and array.ndim > 3 else array

        q1, q2 = state.variances(lambda q: q[..., ::rows, ::columns])
        return _dense(state.map_pairs(thinned, q1=q1, q2=q2, own1=None, own2=None), op)
    padded = window.pad(state)
    q1, q2 = padded.variances(lambda q: w * window.mean(q) + b)
    frame = replace(padded, q1=q1, q2=q2)
    new = weighted_sum([padded], window.mean_along if pairs else window.mean, frame, w=w, b=b)
    return new if new.ntk is None else replace(new, ntk=new.ntk + new.covariance())


def _normalised(state: State, eps: float) -> State:
    """Correlations stay as they are; variances become q / (q + eps)."""
    tiny = torch.finfo(state.q1.dtype).tiny

    def variance_and_factor(q: Tensor) -> tuple[Tensor, Tensor]:
        if eps > tiny**0.5:
            return q / (q + eps), (q + eps).rsqrt()
        # A zero input stays zero even with eps = 0, or one that is zero in float32. No eps bounds the derivative there,
        # which has no direction to go: it counts as zero.
        positive = q > 0
        base = torch.where(positive, q + max(eps, tiny), 1)
        return torch.where(positive, q / base, 0), torch.where(positive, base.rsqrt(), 0)

    q1, factor1 = variance_and_factor(state.q1)
    q2, factor2 = (q1, factor1) if state.q2 is state.q1 else variance_and_factor(state.q2)
    both = state.left(factor1), state.right(factor2)
    return replace(
        state,
        q1=q1,
        q2=q2,
        k=None if state.k is None else state.k * both[0] * both[1],
        ntk=None if state.ntk is None else state.ntk * both[0] * both[1],
    )


def _add(a: State, b: State) -> State:
    """The sum of two states of the same inputs, their own pixel pairs included."""
    if a.pixels is not b.pixels and Pixels.NONE not in (a.pixels, b.pixels):
        a, b = a.same_pixels(), b.same_pixels()
    if a.t.shape != b.t.shape:
        raise branches_differ(a.q1.shape[1:], b.q1.shape[1:])
    q1 = a.q1 + b.q1
    frame = replace(a, q1=q1, q2=q1 if a.q2 is a.q1 and b.q2 is b.q1 else a.q2 + b.q2)
    new = weighted_sum([a, b], lambda array: array, frame, w=1.0, b=0.0)
    if a.own1 is None or b.own1 is None or a.own2 is None or b.own2 is None:
        return new
    own1 = _add(a.own1, b.own1)
    return replace(new, own1=own1, own2=own1 if a.own2 is a.own1 else _add(a.own2, b.own2))
