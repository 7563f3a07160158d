"""Infinite-width networks: what every layer and every composition of layers can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from gdkl.infinite.arrays import ArrayLike, Inputs, read_inputs, warn_of_overflow, warn_unless_finite, whole_number
from gdkl.infinite.engines import engine_for
from gdkl.infinite.gram import Progress, Work, checked_work
from gdkl.infinite.precise import Kind, differentiable_kernel, known_kind, matched_kernel
from gdkl.infinite.program import Op, Program
from gdkl.infinite.store import cache_folder, content_key, copy_rows, open_cached, write_npy
from gdkl.numerics import DEFAULT_BUDGET, DataError, OptionError, require_memory, tensor_bytes

#: Bytes of a matrix that is made without asking whether it fits.
SMALL_BYTES = 32 * 2**20
#: One layer as plain JSON.
Spec: TypeAlias = dict[str, Any]


class InfiniteNetwork(ABC):
    """A network, or a single layer, in the limit of infinitely many units per layer.

    With independent Gaussian weights such a network is a Gaussian process, whose covariance is the NNGP
    kernel; trained by gradient flow it is kernel regression with the NTK.
    """

    #: Whether the layer has weights of its own.
    _has_weights: bool = False

    def kernel(
        self,
        x1: ArrayLike,
        x2: ArrayLike | None = None,
        kind: Kind = "nngp",
        *,
        out: str | PathLike[str] | None = None,
        cache_dir: str | PathLike[str] | None = None,
        memory: int = DEFAULT_BUDGET,
        n_jobs: int | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """Covariances between all pairs of two sets of inputs.

        Args:
            x1: First set, shape ``(n1, features)`` or ``(n1, channels, height, width)``.
            x2: Second set; None for the first again, which takes half the work and gives an exactly symmetric matrix.
            kind: ``"nngp"`` or ``"ntk"``.
            out: A ``.npy`` file to write the result to, for matrices that do not fit into memory; it is
                returned mapped into memory, and what is written to that array changes the file.
            cache_dir: A folder that keeps results by the content of the network and the data; a matrix found
                there is not computed again, unless its checksum shows that the file was damaged.
            memory: Bytes that the work may take beside the result; with very few, tiles are small and slow.
            n_jobs: How many tiles to compute at a time; None for one per core.
            progress: Called with the number of pairs done and of all pairs.

        Returns:
            Shape ``(n1, n2)``, a tensor for tensors and an array for arrays, in the precision of the inputs.
            Gradients flow to the inputs.

        Raises:
            DataError: If the inputs do not fit each other or the network.
            OptionError: If an option is not known.
            MemoryLimitError: If the result, or the work on one pair, does not fit into memory.

        Example:
            >>> import gdkl.infinite as inf
            >>> inf.mlp(hidden_layers=1).kernel(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
            tensor([[3.5600, 1.6610],
                    [1.6610, 1.0000]])
        """
        known_kind(kind)
        program, inputs = self.program().start(read_inputs(x1, x2))
        work = checked_work(memory, n_jobs, progress)
        if inputs.needs_grad and (out is not None or cache_dir is not None):
            raise OptionError("out and cache_dir keep values, not gradients: detach the inputs first.")
        compute = partial(_fill, program, inputs, kind, work)
        shape, dtype = inputs.shape, inputs.x1.dtype
        cached = None
        if cache_dir is not None:
            key = content_key(self.spec_for("cache_dir"), kind, inputs.x1, inputs.x2)
            path = cache_folder(cache_dir) / f"{key}.npy"
            cached = open_cached(path, shape, dtype)
            if cached is None:
                cached = write_npy(path, shape, dtype, compute, checksum=True)
        if out is not None:
            array = write_npy(out, shape, dtype, compute if cached is None else partial(copy_rows, cached, work.memory))
            return array if inputs.as_numpy else torch.from_numpy(array)
        if cached is not None:
            # A copy: what the caller does to it must not reach the cache.
            return inputs.give(torch.from_numpy(np.array(cached)).to(inputs.x1.device))
        return inputs.give(kernel_matrix(program, inputs, kind, work))

    def diagonal(self, x: ArrayLike, kind: Kind = "nngp") -> Any:
        """Variances of a set of inputs, shape ``(n,)``: the diagonal of ``kernel(x, kind=kind)``, without the rest.

        Example:
            >>> import gdkl.infinite as inf
            >>> inf.mlp(hidden_layers=1).diagonal(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
            tensor([3.5600, 1.0000])
        """
        known_kind(kind)
        program, inputs = self.program().start(read_inputs(x, name="x"))
        if inputs.needs_grad:
            return matched_kernel(program, inputs.x1, None, kind, gradient=True)
        with _plain_tensors():
            result = engine_for(program, inputs.x1, inputs.x1, kind).diagonal(Work())
        warn_unless_finite(result)
        return inputs.give(result)

    def pairs(self, x1: ArrayLike, x2: ArrayLike, kind: Kind = "nngp") -> Any:
        """Covariances of input i of one set with input i of the other, shape ``(n,)``: ``kernel(x1, x2).diagonal()``.

        Gradients flow to the inputs.

        Example:
            >>> import gdkl.infinite as inf
            >>> inf.mlp(hidden_layers=1).pairs(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 1.0]]))
            tensor([1.6610])
        """
        known_kind(kind)
        program, inputs = self.program().start(read_inputs(x1, x2))
        if len(x1) != len(x2):
            raise DataError(f"x1 and x2 must have as many inputs; got {len(x1)} and {len(x2)}.")
        with nullcontext() if inputs.needs_grad else _plain_tensors():
            return inputs.give(matched_kernel(program, inputs.x1, inputs.x2, kind, gradient=True))

    def program(self) -> Program:
        """The network as operations, which all engines read."""
        return Program(tuple(self._ops()))

    def to_spec(self) -> list[Spec]:
        """The network as a plain JSON list of layers, from which `from_spec` builds it again.

        Example:
            >>> import gdkl.infinite as inf
            >>> inf.Sequential(inf.Linear(weight_var=2.0), inf.ReLU()).to_spec()
            [{'op': 'dense', 'w_var': 2.0, 'b_var': 0.0}, {'op': 'act', 'name': 'relu'}]
        """
        return [self._own_spec()]

    def spec_for(self, what: str) -> list[Spec]:
        """The network's spec, for an option that recognises results by it."""
        try:
            return self.to_spec()
        except OptionError as error:
            raise OptionError(f"{what} knows a matrix again by the network's spec. {error}") from error

    def finite(self, width: int, outputs: int = 1, *, example: Tensor | None = None) -> nn.Module:
        """A finite torch network with the matching random initialisation.

        Its outputs have this network's covariance as the width grows: weights are drawn with variance weight_var /
        fan-in, biases with bias_var. In that, the standard parametrisation, the Gram matrix of the Jacobian grows with
        the width, and is ``kind="ntk"`` only if gradients are rescaled by the standard deviations of their parameters.

        Args:
            width: Channels of every hidden layer.
            outputs: Channels of the last layer with weights, unless it lies in a residual branch.
            example: Inputs to draw the weights for at once; without them, the first call does so.

        Example:
            >>> import gdkl.infinite as inf
            >>> inf.mlp(hidden_layers=2).finite(64)(torch.ones(5, 3)).shape
            torch.Size([5, 1])
        """
        module = self._finite(whole_number(width, "width", least=1), whole_number(outputs, "outputs", least=1))
        if example is not None:
            with torch.no_grad():
                module(example)
        return module

    @abstractmethod
    def _finite(self, width: int, outputs: int) -> nn.Module:
        """This layer for finitely many channels, the last one with weights giving ``outputs``."""

    @abstractmethod
    def _ops(self) -> Iterator[Op]:
        """The operations of this layer."""

    @abstractmethod
    def _own_spec(self) -> Spec:
        """This layer as plain JSON."""

    def __repr__(self) -> str:
        long = {"w_var": "weight_var", "b_var": "bias_var"}
        own = {key: value for key, value in self._own_spec().items() if key not in ("op", "name")}
        return f"{type(self).__name__}({', '.join(f'{long.get(key, key)}={own[key]!r}' for key in own)})"


def kernel_matrix(program: Program, inputs: Inputs, kind: Kind, work: Work, *, learning: bool = False) -> Tensor:
    """The matrix of a program in memory, with gradients if inputs ask for them or variances are ``learning``."""
    if learning or inputs.needs_grad:
        result = differentiable_kernel(program, inputs, kind)
        warn_of_overflow(result.detach(), inputs)
        return result
    shape = inputs.shape
    needed = tensor_bytes(*shape, dtype=inputs.x1.dtype)
    # Asking for the memory that is left takes a tenth of the time of a small matrix.
    if needed > SMALL_BYTES:
        require_memory(
            needed,
            what=f"a kernel matrix of {shape[0]} x {shape[1]}",
            remedy="Write it to disk with out='kernel.npy', or take fewer inputs.",
            device=inputs.x1.device,
        )
    with _plain_tensors():
        result = torch.empty(shape, dtype=inputs.x1.dtype, device=inputs.x1.device)
    _fill(program, inputs, kind, work, result)
    return result


def _fill(program: Program, inputs: Inputs, kind: Kind, work: Work, into: Any) -> None:
    """Compute the matrix into a tensor or an array on disk."""
    x1 = inputs.x1
    with _plain_tensors():
        engine = engine_for(program, x1, x1 if inputs.x2 is None else inputs.x2, kind)
        engine.fill(into, symmetric=inputs.x2 is None, work=work)
    warn_of_overflow(into, inputs)


@contextmanager
def _plain_tensors() -> Generator[None]:
    """No gradients and no inference mode, whose tensors other threads and later kernels could not write to."""
    with torch.inference_mode(False), torch.no_grad():
        yield
