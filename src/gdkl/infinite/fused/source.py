"""Whole CUDA sources: the kernels of a program, for images and for vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from gdkl.infinite.fused.cuda import Mode, Text
from gdkl.infinite.fused.interpret import run
from gdkl.infinite.fused.lower import LaneProgram
from gdkl.infinite.machine import SHARED_BYTES, WARP
from gdkl.infinite.program import UnsupportedError

#: Rows and columns of a square of the matrix that blocks work off together, so that its inputs stay in the cache.
SQUARE = 64
#: Rows and columns of a tile of vectors, and threads that share it.
DENSE_TILE, DENSE_ROWS = 32, 8
#: Threads of a block that works on several pairs, and blocks that a multiprocessor should hold.
THREADS, RESIDENT = 256, 2


@dataclass(frozen=True)
class Source:
    """A text, threads and pairs (rows, columns) of its blocks, threads and inputs of blocks that compute factors."""

    text: str
    threads: int
    tile: tuple[int, int]
    factor_threads: int
    factor_inputs: int


HEAD = r"""
#define ALL 0xffffffffu
struct Narrow { float v[CONSTANTS]; };
struct Wide { double v[CONSTANTS]; };

__device__ __forceinline__ float madd(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double madd(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ __forceinline__ float root(float a) { return __fsqrt_rn(a); }
__device__ __forceinline__ double root(double a) { return __dsqrt_rn(a); }
__device__ __forceinline__ float reciprocal_root(float a) { return a > 0.0f ? __frcp_rn(__fsqrt_rn(a)) : 0.0f; }
__device__ __forceinline__ double reciprocal_root(double a) { return a > 0.0 ? 1.0 / __dsqrt_rn(a) : 0.0; }
__device__ __forceinline__ double quick_sqrt(double a) { return __dsqrt_rn(a); }
__device__ __forceinline__ double quick_rcp(double a) { return 1.0 / a; }
__device__ __forceinline__ float quick_sqrt(float a) {
    float b;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(b) : "f"(a));
    return b;
}
__device__ __forceinline__ float quick_rcp(float a) {
    float b;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(b) : "f"(a));
    return b;
}
__device__ __forceinline__ float clipped_product(float a, float b) {
    float c;
    asm("mul.rn.ftz.sat.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}
__device__ __forceinline__ double clipped_product(double a, double b) {
    const double c = a * b;
    return c > 0.0 ? (c < 1.0 ? c : 1.0) : 0.0;
}
// What rounding has made of a variance in single precision, it has made of the covariances: both are put right. The
// two differ by a millionth at most, so that half of the sum of the differences does what a root would.
__device__ __forceinline__ float corrected(float k, float q1, float q2, double exact1, double exact2) {
    if (!(q1 > 0.0f) || !(q2 > 0.0f)) return k;
    const float e1 = __fdividef((float)(exact1 - q1), q1), e2 = __fdividef((float)(exact2 - q2), q2);
    return __fmaf_rn(k, 0.5f * (e1 + e2), k);
}
__device__ __forceinline__ double corrected(double k, double, double, double, double) { return k; }
"""

IMAGE_PAIRS = r"""
extern "C" __global__ void __launch_bounds__({threads}, {resident})
pairs(const {real}* __restrict__ first, const {real}* __restrict__ second,
      const {real}* __restrict__ q1, const double* __restrict__ exact1,
      const {real}* __restrict__ q2, const double* __restrict__ exact2,
      {out}* __restrict__ result, {out}* __restrict__ mirror,
      const int n1, const int n2, const long long stride, const int triangle,
      const __grid_constant__ Narrow narrow, const __grid_constant__ Wide wide) {{
{shared}    const int lane = threadIdx.x % {group};
    const int member = threadIdx.x / {group};
    // Squares of the matrix in turn, those below the diagonal left out; in each, tiles of a block.
    const int down = {square} / {tile_rows}, across = {square} / {tile_columns};
    const int squares = (n2 + {square} - 1) / {square};
    const long long square = blockIdx.x / (down * across);
    const int inner = (int)(blockIdx.x % (down * across));
    long long square_row = square / squares, square_column = square % squares;
    if (triangle) {{
        const double edge = 2.0 * squares + 1.0;
        square_row = (long long)((edge - sqrt(edge * edge - 8.0 * (double)square)) / 2.0);
        while (square_row > 0 && square_row * squares - square_row * (square_row - 1) / 2 > square) --square_row;
        while ((square_row + 1) * squares - (square_row + 1) * square_row / 2 <= square) ++square_row;
        square_column = square_row + square - (square_row * squares - square_row * (square_row - 1) / 2);
    }}
    const int top = (int)square_row * {square} + inner / across * {tile_rows};
    const int left = (int)square_column * {square} + inner % across * {tile_columns};
    if (top >= n1 || left >= n2 || (triangle && left + {tile_columns} - 1 <= top)) return;
    const int i = top + member / {tile_columns};
    const int j = left + member % {tile_columns};
    const bool wanted = i < n1 && j < n2 && (!triangle || i < j);
{leave}    const int row = min(i, n1 - 1), column = min(j, n2 - 1);
    first += (long long)row * {factors};
    second += (long long)column * {factors};
{body}
    if (wanted && lane == 0) {{
        const {out} k = ({out})corrected({value}, q1[i], q2[j], exact1[i], exact2[j]);
        result[i * stride + j] = k;
        if (mirror) mirror[j * stride + i] = k;
    }}
}}
"""

IMAGE_FACTORS = r"""
extern "C" __global__ void __launch_bounds__({factor_threads})
notes(const {input}* __restrict__ images, {real}* __restrict__ note, {real}* __restrict__ q,
      double* __restrict__ exact, const int n, const __grid_constant__ Narrow narrow,
      const __grid_constant__ Wide wide) {{
{shared}    const int lane = threadIdx.x % {group};
    const int input = min((int)(blockIdx.x * {factor_inputs} + threadIdx.x / {group}), n - 1);
    const {input}* image = images + (long long)input * {numbers};
    if (blockIdx.y == 0) {{
        note += (long long)input * {factors};
{body}
        if (lane == 0) q[input] = {value};
    }} else {{
{exact_body}
        if (lane == 0) exact[input] = {exact_value};
    }}
}}
"""

DENSE_PAIRS = r"""
extern "C" __global__ void __launch_bounds__({threads})
pairs(const {real}* product, const {real}* __restrict__ notes1, const {real}* __restrict__ notes2,
      const {real}* __restrict__ q1, const double* __restrict__ exact1,
      const {real}* __restrict__ q2, const double* __restrict__ exact2,
      {out}* result, {out}* mirror,
      const int n1, const int n2, const long long product_stride, const long long stride, const int triangle,
      const __grid_constant__ Narrow narrow, const __grid_constant__ Wide wide) {{
    __shared__ {out} turned[{tile}][{tile} + 1];
    const int top = blockIdx.y * {tile}, left = blockIdx.x * {tile};
    if (triangle && left + {tile} - 1 <= top) return;
    const int x = threadIdx.x % {tile}, y = threadIdx.x / {tile};
    const int j = left + x;
    #pragma unroll
    for (int part = 0; part < {tile}; part += {rows}) {{
        const int i = top + y + part;
        if (i < n1 && j < n2 && (!triangle || i < j)) {{
            const {real}* first = notes1 + i;
            const {real}* second = notes2 + j;
            const {real} start = product[i * product_stride + j];
{body}
            const {out} k = ({out})corrected({value}, q1[i], q2[j], exact1[i], exact2[j]);
            result[i * stride + j] = k;
            turned[x][y + part] = k;
        }}
    }}
    if (!mirror) return;
    __syncthreads();
    const int i = top + x;
    #pragma unroll
    for (int part = 0; part < {tile}; part += {rows}) {{
        const int column = left + y + part;
        if (i < n1 && column < n2 && (!triangle || i < column)) mirror[column * stride + i] = turned[y + part][x];
    }}
}}
"""

DENSE_FACTORS = r"""
extern "C" __global__ void __launch_bounds__({factor_threads})
notes(const double* __restrict__ squares, {real}* __restrict__ note, {real}* __restrict__ q,
      double* __restrict__ exact, const int n, const __grid_constant__ Narrow narrow,
      const __grid_constant__ Wide wide) {{
    const int input = blockIdx.x * {factor_threads} + threadIdx.x;
    if (input >= n) return;
    if (blockIdx.y == 0) {{
        note += input;
        const {real} start = ({real})squares[input];
{body}
        q[input] = {value};
    }} else {{
        const double start = squares[input];
{exact_body}
        exact[input] = {exact_value};
    }}
}}
"""


def write(program: LaneProgram, shape: tuple[int, ...], out: str) -> Source:
    """The CUDA source of a program for one shape of inputs; ``out`` is the C type of inputs and results."""
    # Constants are data: a network with other variances has the same text.
    return _written(replace(program, constants=(0.0,) * len(program.constants)), shape, out)


@lru_cache(maxsize=64)
def _written(program: LaneProgram, shape: tuple[int, ...], out: str) -> Source:
    head = HEAD.replace("CONSTANTS", str(max(1, len(program.constants))))
    return _images(program, shape, out, head) if program.group else _vectors(program, out, head)


def _texts(program: LaneProgram, start: str | None) -> list[tuple[Text, str]]:
    """The texts of pairs, factors and exact variances, and the names of their results."""
    machines = [Text(program, mode) for mode in Mode]
    return [(machine, run(program, machine, start)) for machine in machines]


def _images(program: LaneProgram, shape: tuple[int, ...], out: str, head: str) -> Source:
    (pairs, value), (factors, factor_value), (exact, exact_value) = _texts(program, None)
    group, width = program.group, 8 if program.double else 4
    members = 1 if group > WARP else max(1, THREADS // group)
    while members > 1 and members * pairs.box * width > SHARED_BYTES:
        members //= 2
    # A block is whole warps.
    members = max(members, WARP // group, 1)
    box = max(factors.box * width, exact.box * 8)
    if max(members * pairs.box * width, box * max(1, WARP // group)) > SHARED_BYTES:
        raise UnsupportedError("the maps do not fit the shared memory")
    threads = members * group
    tile_columns = 2 ** math.ceil(math.log2(members) / 2)
    tile = (members // tile_columns, tile_columns)
    # As many blocks as the registers of 16 warps a multiprocessor allow.
    resident = max(1, THREADS * RESIDENT // threads)
    factor_threads = max(group, WARP)
    names = {
        "real": pairs.real,
        "out": out,
        "input": out,
        "group": group,
        "square": SQUARE,
        "tile_rows": tile[0],
        "tile_columns": tile[1],
        "threads": threads,
        "resident": min(resident, 2048 // threads),
        "factors": program.factors,
        "numbers": math.prod(shape),
        "factor_threads": factor_threads,
        "factor_inputs": factor_threads // group,
        "leave": "    if (!wanted) return;\n" if group >= WARP else "",
    }
    pair_text = IMAGE_PAIRS.format(**names, shared=_shared(pairs, pairs.box, members), body=pairs.text(), value=value)
    factor_text = IMAGE_FACTORS.format(
        **names,
        shared=_shared_bytes(box, factor_threads // group),
        body=_boxed(factors, box, "        "),
        value=factor_value,
        exact_body=_boxed(exact, box, "        "),
        exact_value=exact_value,
    )
    return Source(head + pair_text + factor_text, threads, tile, factor_threads, factor_threads // group)


def _shared(text: Text, box: int, members: int) -> str:
    """Shared memory of a block of pairs, a part of it for each group."""
    if box == 0:
        return ""
    return (
        f"    __shared__ {text.real} boxes[{members} * {box}];\n"
        f"    {text.real}* box = boxes + threadIdx.x / {text.group} * {box};\n"
    )


def _shared_bytes(box: int, members: int) -> str:
    """Shared memory of a block that computes factors, which its two halves read in different types."""
    return f"    __shared__ double boxes[{members} * {-(-box // 8)}];\n" if box else ""


def _boxed(text: Text, box: int, indent: str) -> str:
    if box == 0:
        return text.text(indent)
    first = f"boxes + threadIdx.x / {text.group} * {-(-box // 8)}"
    return f"{indent}{text.real}* box = reinterpret_cast<{text.real}*>({first});\n" + text.text(indent)


def _vectors(program: LaneProgram, out: str, head: str) -> Source:
    (pairs, value), (factors, factor_value), (exact, exact_value) = _texts(program, "start")
    threads = DENSE_TILE * DENSE_ROWS
    names = {
        "real": pairs.real,
        "out": out,
        "tile": DENSE_TILE,
        "rows": DENSE_ROWS,
        "threads": threads,
        "factor_threads": threads,
    }
    pair_text = DENSE_PAIRS.format(**names, body=pairs.text(" " * 12), value=value)
    factor_text = DENSE_FACTORS.format(
        **names,
        body=factors.text(" " * 8),
        value=factor_value,
        exact_body=exact.text(" " * 8),
        exact_value=exact_value,
    )
    return Source(head + pair_text + factor_text, threads, (DENSE_TILE, DENSE_TILE), threads, threads)
