"""A compiled network, launched on torch's stream: factors of inputs, covariances of pairs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gdkl.infinite.fused import compile as compiler
from gdkl.infinite.fused.lower import LaneProgram, lower
from gdkl.infinite.fused.source import DENSE_TILE, SQUARE, Source, write
from gdkl.infinite.program import Program, UnsupportedError

#: Blocks that one launch can have.
MOST_BLOCKS = 2**31 - 1


@dataclass(frozen=True)
class Prepared:
    """What pairs need to know of a set of inputs.

    ``planes`` are the factors, ``(n, numbers)`` for images and ``(numbers, n)`` for vectors, ``q`` the variances behind
    the network in the arithmetic of the pairs, ``exact`` those in double precision.
    """

    x: Tensor
    planes: Tensor
    q: Tensor
    exact: Tensor


class Kernel:
    """A network compiled for one shape of inputs, one precision and one device."""

    def __init__(self, program: LaneProgram, shape: tuple[int, ...], dtype: torch.dtype, device: int) -> None:
        self.program, self.shape, self.dtype, self.device = program, shape, dtype, device
        self.source: Source = write(program, shape, "float" if dtype == torch.float32 else "double")
        self.real = torch.float64 if program.double else torch.float32
        self.numbers = program.factors
        with torch.cuda.device(device):
            module = compiler.load(self.source.text, device)
            self._pairs, self._factors = module.get_function("pairs"), module.get_function("notes")
        self._constants = tuple(_struct(program.constants, kind) for kind in (np.float32, np.float64))

    @property
    def bytes_per_input(self) -> int:
        """Memory that the factors of one input take."""
        return (self.numbers + 3) * self.real.itemsize + 8

    def prepare(self, x: Tensor) -> Prepared:
        """The factors and variances of some inputs."""
        n, vectors = x.shape[0], self.program.group == 0
        planes = x.new_empty((self.numbers, n) if vectors else (n, self.numbers), dtype=self.real)
        q, exact = x.new_empty(n, dtype=self.real), x.new_empty(n, dtype=torch.float64)
        start = torch.linalg.vector_norm(x, dim=1, dtype=torch.float64).square_() if vectors else x.contiguous()
        blocks = -(-n // self.source.factor_inputs)
        arguments = (start, planes, q, exact, np.int32(n))
        self._launch(self._factors, (blocks, 2, 1), self.source.factor_threads, arguments)
        return Prepared(x, planes, q, exact)

    def pairs(
        self, first: Prepared, second: Prepared, result: Tensor, mirror: Tensor | None, *, triangle: bool
    ) -> None:
        """Covariances of all pairs, or of those above the diagonal, into ``result`` and mirrored into ``mirror``."""
        n1, n2 = result.shape
        if n1 == 0 or n2 == 0:
            return
        sides = (first.planes, second.planes, first.q, first.exact, second.q, second.exact, result, mirror)
        sizes, stride = (np.int32(n1), np.int32(n2)), np.int64(result.stride(0))
        if self.program.group == 0:
            # One matrix product, then all layers in one pass over it.
            if result.dtype == self.real:
                product = torch.mm(first.x, second.x.T, out=result)
            else:
                product = first.x.to(self.real) @ second.x.to(self.real).T
            arguments = (product, *sides, *sizes, np.int64(product.stride(0)), stride, np.int32(triangle))
            grid = (-(-n2 // DENSE_TILE), -(-n1 // DENSE_TILE), 1)
            self._launch(self._pairs, grid, self.source.threads, arguments)
            return
        squares, across = -(-n1 // SQUARE), -(-n2 // SQUARE)
        count = across * (across + 1) // 2 if triangle else squares * across
        blocks = count * (SQUARE // self.source.tile[0]) * (SQUARE // self.source.tile[1])
        arguments = (*sides, *sizes, stride, np.int32(triangle))
        self._launch(self._pairs, (blocks, 1, 1), self.source.threads, arguments)

    def _launch(self, function: Any, grid: tuple[int, int, int], threads: int, arguments: tuple[Any, ...]) -> None:
        """On the stream on which torch works, so that both see each other's results in order."""
        if grid[0] > MOST_BLOCKS:
            raise RuntimeError("a launch has too many blocks")
        plain = [
            np.uint64(0 if value is None else value.data_ptr()) if isinstance(value, Tensor | None) else value
            for value in arguments
        ]
        with torch.cuda.device(self.device):
            stream = _stream(torch.cuda.current_stream(self.device).cuda_stream)
            function(grid, (threads, 1, 1), (*plain, *self._constants), 0, stream)


@lru_cache(maxsize=16)
def _stream(pointer: int) -> Any:
    with warnings.catch_warnings():
        # CuPy 14 prefers a newer way, which CuPy 13 does not have.
        warnings.simplefilter("ignore", DeprecationWarning)
        return compiler.cupy().cuda.ExternalStream(pointer)


def _struct(numbers: tuple[float, ...], kind: Any) -> np.ndarray[Any, Any]:
    """Numbers as a C struct that is passed by value: one item of as many bytes."""
    array = np.array(numbers or (0.0,), dtype=kind)
    return array.view(f"V{array.nbytes}")


def kernel_of(program: Program, x: Tensor) -> Kernel:
    """The compiled kernel of a network for inputs like these, unless it is unsupported."""
    try:
        found = _cached(program, tuple(x.shape[1:]), x.dtype, x.device.index)
    except TypeError as error:
        raise UnsupportedError(f"a layer holds something that cannot be compared ({error})") from error
    if isinstance(found, UnsupportedError):
        raise found
    return found


@lru_cache(maxsize=256)
def _cached(program: Program, shape: tuple[int, ...], dtype: torch.dtype, device: int) -> Any:
    """The kernel, or the reason why there is none."""
    try:
        return Kernel(lower(program, shape, dtype), shape, dtype, device)
    except UnsupportedError as reason:
        return reason
