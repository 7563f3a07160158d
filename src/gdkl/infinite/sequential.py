"""Layers one after another."""

from __future__ import annotations

from torch import nn

from gdkl.infinite.network import InfiniteNetwork, Spec
from gdkl.infinite.state import State
from gdkl.numerics import OptionError


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

    @property
    def _has_weights(self) -> bool:
        return any(layer._has_weights for layer in self.layers)

    def _finite(self, width: int, outputs: int) -> nn.Module:
        last = max((i for i, layer in enumerate(self.layers) if layer._has_weights), default=-1)
        return nn.Sequential(
            *(layer._finite(width, outputs if i == last else width) for i, layer in enumerate(self.layers))
        )

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
