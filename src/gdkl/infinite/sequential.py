"""Layers one after another."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from gdkl.infinite.network import InfiniteNetwork, Spec
from gdkl.infinite.program import Op
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

    def to_spec(self) -> list[Spec]:
        """The layers of all parts in one flat list."""
        return [spec for layer in self.layers for spec in layer.to_spec()]

    @property
    def _has_weights(self) -> bool:
        return any(layer._has_weights for layer in self.layers)

    def _finite(self, width: int, outputs: int) -> nn.Module:
        last = max((i for i, layer in enumerate(self.layers) if layer._has_weights), default=-1)
        return nn.Sequential(
            *(layer._finite(width, outputs if i == last else width) for i, layer in enumerate(self.layers))
        )

    def _ops(self) -> Iterator[Op]:
        for layer in self.layers:
            yield from layer._ops()

    def _own_spec(self) -> Spec:
        raise RuntimeError("a sequence is a list of layers: to_spec() gives it")

    def __repr__(self) -> str:
        return f"Sequential({', '.join(map(repr, self.layers))})"
