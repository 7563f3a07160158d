"""Infinite-width networks: what every layer and every composition of layers can do."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from gdkl.infinite.arrays import ArrayLike, Inputs, read_inputs
from gdkl.infinite.fused.engine import fused_engine
from gdkl.infinite.gram import ARRAYS, Progress, Work, checked_work, fill
from gdkl.infinite.images import image_state
from gdkl.infinite.overflow import warn_of_overflow, warn_unless_finite
from gdkl.infinite.parameters import whole_number
from gdkl.infinite.recursion import Kind, Recursion, cast, known_kind, read_out
from gdkl.infinite.spatial import no_read_out
from gdkl.infinite.state import Pixels, State
from gdkl.infinite.store import cache_folder, content_key, open_cached, write_npy
from gdkl.infinite.vectors import vector_state
from gdkl.numerics import (
    DEFAULT_BUDGET,
    OptionError,
    chunk_slices,
    require_memory,
    tensor_bytes,
)

if TYPE_CHECKING:
    from gdkl.infinite.fast import ShortWay

#: Bytes of a matrix that is made without asking whether it fits.
SMALL_BYTES = 32 * 2**20
#: One layer as plain JSON.
Spec: TypeAlias = dict[str, Any]


class InfiniteNetwork(ABC):
    """A network, or a single layer, in the limit of infinitely many units a layer.

    With independent Gaussian weights such a network is a Gaussian process, whose covariance is the NNGP
    kernel; trained by gradient flow it is kernel regression with the NTK.
    """

    #: Whether 1 + c must be carried beside 1 − c for full precision at antipodal inputs.
    _two_sided = False
    #: Whether all pairs of pixels must be carried up to here.
    _needs_pairs = False

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
            x2: Second set; None for the first set again, which takes half the work and gives an exactly
                symmetric matrix.
            kind: ``"nngp"`` or ``"ntk"``.
            out: A ``.npy`` file to write the result to, for matrices that do not fit into memory; it is
                returned mapped into memory, and what is written to that array changes the file.
            cache_dir: A folder that keeps results by the content of the network and the data; a matrix found
                there is not computed again, unless its checksum tells that the file was damaged.
            memory: Bytes that the work may take beside the result; with very few, tiles are small and slow.
            n_jobs: How many tiles to compute at a time; None for one a core.
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
        inputs = self._read(x1, x2, kind)
        work = checked_work(memory, n_jobs, progress)
        if inputs.needs_grad:
            if out is not None or cache_dir is not None:
                raise OptionError("out and cache_dir keep values, not gradients: detach the inputs first.")
            result = self._with_gradient(inputs, kind)
            warn_of_overflow(result.detach(), inputs)
            return result
        shape = (inputs.x1.shape[0], inputs.x1.shape[0] if inputs.x2 is None else inputs.x2.shape[0])

        def compute(into: Any) -> None:
            self._fill(inputs, kind, into, work)
            warn_of_overflow(into, inputs)

        if cache_dir is not None:
            key = content_key(self._spec_for("cache_dir"), kind, inputs.x1, inputs.x2)
            path = cache_folder(cache_dir) / f"{key}.npy"
            cached = open_cached(path, shape, inputs.x1.dtype)
            if cached is None:
                cached = write_npy(path, shape, inputs.x1.dtype, compute, checksum=True)
            if out is None:
                # A copy: what the caller does to it must not reach the cache.
                return inputs.give(torch.from_numpy(np.array(cached)).to(inputs.x1.device))

            def copy(into: Any, source: Any = cached) -> None:
                for rows in chunk_slices(shape[0], max(1, work.memory // max(1, 8 * shape[1]))):
                    into[rows] = source[rows]

            compute = copy
        if out is not None:
            array = write_npy(out, shape, inputs.x1.dtype, compute)
            return array if inputs.as_numpy else torch.from_numpy(array)
        needed = tensor_bytes(*shape, dtype=inputs.x1.dtype)
        # Asking for the memory that is left takes a tenth of the time of a small matrix.
        if needed > SMALL_BYTES:
            require_memory(
                needed,
                what=f"a kernel matrix of {shape[0]} x {shape[1]}",
                remedy="Write it to disk with out='kernel.npy', or take fewer inputs.",
                device=inputs.x1.device,
            )
        result = torch.empty(shape, dtype=inputs.x1.dtype, device=inputs.x1.device)
        compute(result)
        return inputs.give(result)

    def diagonal(self, x: ArrayLike, kind: Kind = "nngp") -> Any:
        """Variances of a set of inputs: the diagonal of ``kernel(x, kind=kind)``, without the rest.

        Args:
            x: Inputs, shape ``(n, features)`` or ``(n, channels, height, width)``.
            kind: ``"nngp"`` or ``"ntk"``.

        Returns:
            Shape ``(n,)``, a tensor for a tensor and an array for an array.

        Example:
            >>> import gdkl.infinite as inf
            >>> inf.mlp(hidden_layers=1).diagonal(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
            tensor([3.5600, 1.0000])
        """
        inputs = self._read(x, None, kind, name="x")
        if inputs.needs_grad:
            return inputs.give(self._diagonal(inputs.x1, kind, gradient=True))
        engine = (
            fused_engine(self, inputs.x1, inputs.x1, kind)
            or self._short_way(inputs.x1, inputs.x1, kind)
            or Recursion(self, inputs.x1, inputs.x1, kind)
        )
        with torch.no_grad():
            result = engine.diagonal(Work())
        warn_unless_finite(result)
        return inputs.give(result)

    def to_spec(self) -> list[Spec]:
        """The network as a plain JSON list of layers, from which `from_spec` builds it again.

        Example:
            >>> import gdkl.infinite as inf
            >>> inf.Sequential(inf.Linear(weight_var=2.0), inf.ReLU()).to_spec()
            [{'op': 'dense', 'w_var': 2.0, 'b_var': 0.0}, {'op': 'act', 'name': 'relu'}]
        """
        return [self._own_spec()]

    def _read(self, x1: ArrayLike, x2: ArrayLike | None, kind: Kind, *, name: str = "x1") -> Inputs:
        """Checked inputs of a known kind."""
        known_kind(kind)
        return read_inputs(x1, x2, name=name)

    def _spec_for(self, what: str) -> list[Spec]:
        """The network's spec, for an option that knows results again by it."""
        try:
            return self.to_spec()
        except OptionError as error:
            raise OptionError(f"{what} knows a matrix again by the network's spec. {error}") from error

    def _with_gradient(self, inputs: Inputs, kind: Kind) -> Tensor:
        """The whole matrix at once, for autograd."""
        result = read_out(self._run(inputs.x1, inputs.x2, kind, gradient=True), kind)
        if inputs.x2 is not None:
            return result
        upper = result.triu(1)
        return upper + upper.T + torch.diag(self._diagonal(inputs.x1, kind, gradient=True))

    def _fill(self, inputs: Inputs, kind: Kind, into: Any, work: Work) -> None:
        """Compute the matrix tile by tile."""
        x1 = inputs.x1
        other = x1 if inputs.x2 is None else inputs.x2
        fused = fused_engine(self, x1, other, kind)
        if fused is not None:
            with torch.no_grad():
                fused.fill(into, symmetric=inputs.x2 is None, work=work)
            return
        engine = self._short_way(x1, other, kind) or Recursion(self, x1, other, kind)
        diagonal = None
        if inputs.x2 is None:
            with torch.no_grad():
                diagonal = engine.diagonal(work)
        fill(engine, into, diagonal, work=work)

    def _short_way(self, x1: Tensor, x2: Tensor, kind: Kind) -> ShortWay | None:
        """A faster engine than the general recursion, for those networks that have one."""
        if kind != "nngp" or self._needs_pairs:
            return None
        from gdkl.infinite.fast import ShortWay  # noqa: PLC0415 - it knows all layers, which know us
        from gdkl.infinite.fast_steps import Normalise, flat, program  # noqa: PLC0415

        steps = program(self)
        if steps is None:
            return None
        # Dividing by next to nothing takes the care of the long way.
        tiny = torch.finfo(x1.dtype).tiny
        if any(isinstance(step, Normalise) and step.eps < tiny for step in flat(steps)):
            return None
        return ShortWay(steps, x1, x2)

    def _side(self, x: Tensor, work: Work) -> int:
        """Rows and columns of a tile."""
        return work.side(*self._numbers_per_pair(x), x.device)

    def _numbers_per_pair(self, x: Tensor) -> tuple[int, torch.dtype]:
        """Numbers of an array of one pair of inputs, and their precision."""
        pixels = math.prod(x.shape[2:])
        return (pixels**2, torch.float64) if self._needs_pairs else (pixels, x.dtype)

    def _require_whole(self, x1: Tensor, x2: Tensor | None, *, matched: bool) -> None:
        """Refuse work that cannot be cut into tiles, as gradients need it at once, if it does not fit."""
        self._side(x1, Work())
        numbers, dtype = self._numbers_per_pair(x1)
        n1, n2 = x1.shape[0], (x1 if x2 is None else x2).shape[0]
        require_memory(
            tensor_bytes(n1 if matched else n1 * n2, numbers, ARRAYS, dtype=dtype),
            what=f"a kernel of {n1} inputs with gradients" if matched else f"a kernel of {n1} x {n2} with gradients",
            remedy="Take fewer inputs at a time, or detach them and use torch.no_grad().",
            device=x1.device,
        )

    def _diagonal(self, x: Tensor, kind: Kind, *, gradient: bool = False) -> Tensor:
        state = self._run(x, None, kind, matched=True, gradient=gradient)
        return state.q1 if kind == "nngp" else read_out(state, kind)

    def _matched(self, x1: Tensor, x2: Tensor | None, kind: Kind, *, gradient: bool = False) -> Tensor:
        """Covariances of row i of one set with row i of the other."""
        if x2 is None:
            return self._diagonal(x1, kind, gradient=gradient)
        return read_out(self._run(x1, x2, kind, matched=True, gradient=gradient), kind)

    def _run(
        self, x1: Tensor, x2: Tensor | None, kind: Kind, *, matched: bool = False, gradient: bool = False
    ) -> State:
        """Start a state on the inputs and send it through the network."""
        dtype = x1.dtype
        if gradient:
            self._require_whole(x1, x2, matched=matched)
        if self._needs_pairs:
            # Pooling takes differences of covariances, for which half of float32's digits are not enough.
            x1, x2 = x1.double(), None if x2 is None else x2.double()
        two_sided, ntk = kind == "ntk" or self._two_sided, kind == "ntk"
        if x1.ndim == 2:
            state = vector_state(x1, x2, matched=matched, two_sided=two_sided, ntk=ntk, gradient=gradient)
        else:
            state = image_state(
                x1,
                x2,
                matched=matched,
                pairs=self._needs_pairs,
                two_sided=two_sided,
                ntk=ntk,
                gradient=gradient,
            )
        state = self._step(state, pairs_ahead=False)
        if state.pixels is not Pixels.NONE:
            raise no_read_out()
        return state if state.t.dtype == dtype else cast(state, dtype)

    def _step(self, state: State, pairs_ahead: bool) -> State:
        """The state behind this layer, with the own pixel pairs of either set taken along.

        Args:
            state: The state before it.
            pairs_ahead: Whether a layer further on needs all pairs of pixels.
        """
        new = self._propagate(state)
        if state.own1 is None or state.own2 is None or new.pixels is not Pixels.PAIRS:
            return new
        own1 = self._step(state.own1, pairs_ahead)
        own2 = own1 if state.own2 is state.own1 else self._step(state.own2, pairs_ahead)
        return replace(new, own1=own1, own2=own2)

    def finite(self, width: int, outputs: int = 1, *, example: Tensor | None = None) -> nn.Module:
        """A finite torch network with the matching random initialisation.

        Its outputs have this network's covariance as the width grows: weights are drawn with variance
        weight_var / fan-in, biases with bias_var.

        Args:
            width: Channels of every hidden layer.
            outputs: Channels of the last layer with weights, unless it lies in a residual branch.
            example: Inputs to draw the weights for at once; without them, that happens at the first call,
                when the number of input channels is known.

        Raises:
            OptionError: If a size is not positive.

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

    @property
    def _has_weights(self) -> bool:
        """Whether the layer has weights of its own."""
        return False

    @abstractmethod
    def _finite(self, width: int, outputs: int) -> nn.Module:
        """This layer for finitely many channels, the last one with weights giving ``outputs``."""

    @abstractmethod
    def _propagate(self, state: State) -> State:
        """The state behind this layer, given the state before it."""

    @abstractmethod
    def _own_spec(self) -> Spec:
        """This layer as plain JSON."""

    def __repr__(self) -> str:
        long = {"w_var": "weight_var", "b_var": "bias_var"}
        own = {key: value for key, value in self._own_spec().items() if key not in ("op", "name")}
        return f"{type(self).__name__}({', '.join(f'{long.get(key, key)}={own[key]!r}' for key in own)})"
