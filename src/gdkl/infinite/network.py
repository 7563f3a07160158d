"""Infinite-width networks: what every layer and every composition of layers can do."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from gdkl.infinite.arrays import ArrayLike, Inputs, read_inputs
from gdkl.infinite.images import image_state
from gdkl.infinite.state import Pixels, State
from gdkl.infinite.vectors import vector_state
from gdkl.numerics import DataError, OptionError

#: One layer as plain JSON.
Spec: TypeAlias = dict[str, Any]
#: Which kernel: the prior covariance of the network, or the kernel of its training by gradient flow.
Kind: TypeAlias = Literal["nngp", "ntk"]


def finite_number(value: float, name: str, *, least: float = -math.inf) -> float:
    """A parameter as a float, refused if it is not finite or too small.

    Raises:
        OptionError: If the value is not allowed.

    Example:
        >>> finite_number(2, "weight_var", least=0.0)
        2.0
    """
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise OptionError(f"{name} must be a number; got {value!r}.") from error
    if not math.isfinite(number) or number < least:
        bound = "finite" if least == -math.inf else f"finite and at least {least:g}"
        raise OptionError(f"{name} must be {bound}; got {value!r}.")
    return number


class InfiniteNetwork(ABC):
    """A network, or a single layer, in the limit of infinitely many units a layer.

    With independent Gaussian weights such a network is a Gaussian process, whose covariance is the NNGP
    kernel; trained by gradient flow it is kernel regression with the NTK.
    """

    #: Whether 1 + c must be carried beside 1 − c for full precision at antipodal inputs.
    _two_sided = False
    #: Whether all pairs of pixels must be carried up to here.
    _needs_pairs = False

    def kernel(self, x1: ArrayLike, x2: ArrayLike | None = None, kind: Kind = "nngp") -> Any:
        """Covariances between all pairs of two sets of inputs.

        Args:
            x1: First set, shape ``(n1, features)`` or ``(n1, channels, height, width)``.
            x2: Second set; None for the first set again, which gives an exactly symmetric matrix.
            kind: ``"nngp"`` or ``"ntk"``.

        Returns:
            Shape ``(n1, n2)``, a tensor for tensors and an array for arrays, in the precision of the inputs.
            Gradients flow to the inputs.

        Raises:
            DataError: If the inputs do not fit each other or the network.
            OptionError: If the kind is not known.

        Example:
            >>> import gdkl.infinite as inf
            >>> inf.mlp(hidden_layers=1).kernel(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
            tensor([[3.5600, 1.6610],
                    [1.6610, 1.0000]])
        """
        inputs = read_inputs(x1, x2)
        state = self._run(inputs, kind, matched=False)
        result = _read(state, kind)
        if inputs.x2 is None:
            upper = result.triu(1)
            result = upper + upper.T + torch.diag(self._diagonal(inputs, kind))
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
        inputs = read_inputs(x)
        return inputs.give(self._diagonal(inputs, kind))

    def to_spec(self) -> list[Spec]:
        """The network as a plain JSON list of layers, from which `from_spec` builds it again.

        Example:
            >>> import gdkl.infinite as inf
            >>> inf.Sequential(inf.Linear(weight_var=2.0), inf.ReLU()).to_spec()
            [{'op': 'dense', 'w_var': 2.0, 'b_var': 0.0}, {'op': 'act', 'name': 'relu'}]
        """
        return [self._own_spec()]

    def _diagonal(self, inputs: Inputs, kind: Kind) -> Tensor:
        state = self._run(inputs, kind, matched=True)
        return state.q1 if kind == "nngp" else _read(state, kind)

    def _run(self, inputs: Inputs, kind: Kind, *, matched: bool) -> State:
        """Start a state on the inputs and send it through the network."""
        if kind not in get_args(Kind):
            raise OptionError(f"kind={kind!r} is not known: use 'nngp' or 'ntk'.")
        x1, x2, dtype = inputs.x1, inputs.x2, inputs.x1.dtype
        if self._needs_pairs:
            # Pooling takes differences of covariances, for which half of float32's digits are not enough.
            x1, x2 = x1.double(), None if x2 is None else x2.double()
        two_sided, ntk = kind == "ntk" or self._two_sided, kind == "ntk"
        if x1.ndim == 2:
            state = vector_state(
                x1, x2, matched=matched, two_sided=two_sided, ntk=ntk, gradient=inputs.needs_grad
            )
        else:
            state = image_state(
                x1,
                x2,
                matched=matched,
                pairs=self._needs_pairs,
                two_sided=two_sided,
                ntk=ntk,
                gradient=inputs.needs_grad,
            )
        state = self._step(state, pairs_ahead=False)
        if state.pixels is not Pixels.NONE:
            raise DataError(
                "the network gives an image for an image: end it with Flatten() or GlobalAvgPool2d()."
            )
        return state if state.t.dtype == dtype else _cast(state, dtype)

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

    @abstractmethod
    def _propagate(self, state: State) -> State:
        """The state behind this layer, given the state before it."""

    @abstractmethod
    def _own_spec(self) -> Spec:
        """This layer as plain JSON."""

    def __repr__(self) -> str:
        own = {key: value for key, value in self._own_spec().items() if key not in ("op", "name")}
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in own.items())})"


def _read(state: State, kind: Kind) -> Tensor:
    """The kernel asked for, out of the last state."""
    if kind == "nngp":
        return state.covariance()
    if state.ntk is None:
        raise RuntimeError("the state carries no NTK although it was asked for")
    return state.ntk


def _cast(state: State, dtype: torch.dtype) -> State:
    """The state in another precision."""
    return state.map_pairs(lambda array: array.to(dtype), q1=state.q1.to(dtype), q2=state.q2.to(dtype))


class Sequential(InfiniteNetwork):
    """Layers one after another.

    Args:
        *layers: Layers or networks, in order.

    Example:
        >>> import gdkl.infinite as inf
        >>> net = inf.Sequential(inf.Linear(weight_var=1.6, bias_var=0.2), inf.ReLU(), inf.Linear())
        >>> len(net.layers)
        3
    """

    def __init__(self, *layers: InfiniteNetwork) -> None:
        for layer in layers:
            if not isinstance(layer, InfiniteNetwork):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise OptionError(f"a layer must be one of gdkl.infinite's; got {type(layer).__name__}.")
        self.layers = layers

    @property
    def _two_sided(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return any(layer._two_sided for layer in self.layers)

    def to_spec(self) -> list[Spec]:
        """The layers of all parts in one flat list."""
        return [spec for layer in self.layers for spec in layer.to_spec()]

    @property
    def _needs_pairs(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return any(layer._needs_pairs for layer in self.layers)

    def _step(self, state: State, pairs_ahead: bool) -> State:
        for i, layer in enumerate(self.layers):
            ahead = pairs_ahead or any(later._needs_pairs for later in self.layers[i + 1 :])
            state = layer._step(state, ahead)
            if not ahead:
                # Behind the last pooling the same pixels are enough.
                state = state.same_pixels()
        return state

    def _propagate(self, state: State) -> State:
        return self._step(state, pairs_ahead=False)

    def _own_spec(self) -> Spec:
        raise RuntimeError("a sequence is a list of layers: to_spec() gives it")

    def __repr__(self) -> str:
        return f"Sequential({', '.join(map(repr, self.layers))})"
