"""Layers that act on each pixel alone, and layers one after another."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from torch import nn

from gdkl.infinite.finite import FiniteFunction, FiniteLinear, channel_norm
from gdkl.infinite.network import InfiniteNetwork, Spec
from gdkl.infinite.parameters import finite_number
from gdkl.infinite.program import Affine, Normalise, Op
from gdkl.numerics import OptionError


class Linear(InfiniteNetwork):
    """A fully connected layer: K ← w·K + b, T ← K + w·T.

    On images it acts on the channels of each pixel, as a 1 × 1 convolution.

    Args:
        weight_var: Variance w of the weights, before division by the number of inputs.
        bias_var: Variance b of the biases.

    Example:
        >>> import torch
        >>> Linear(weight_var=2.0, bias_var=0.5).kernel(torch.tensor([[1.0, 1.0]]))
        tensor([[2.5000]])
    """

    def __init__(self, weight_var: float = 1.0, bias_var: float = 0.0) -> None:
        self.weight_var = finite_number(weight_var, "weight_var", least=0.0)
        self.bias_var = finite_number(bias_var, "bias_var", least=0.0)

    def _ops(self) -> Iterator[Op]:
        yield Affine(self.weight_var, self.bias_var)

    @property
    def _has_weights(self) -> bool:
        return True

    def _finite(self, width: int, outputs: int) -> nn.Module:
        del width
        return FiniteLinear(outputs, self.weight_var, self.bias_var)

    def _own_spec(self) -> Spec:
        return {"op": "dense", "w_var": self.weight_var, "b_var": self.bias_var}


class LayerNorm(InfiniteNetwork):
    """Normalisation of each pixel, or each vector, over its channels: K ← K / √((q1 + eps)(q2 + eps)).

    Correlations stay as they are. No mean is subtracted: behind weights, where the mean over infinitely many
    channels is zero, that is the usual layer norm, and elsewhere a root-mean-square norm.

    Args:
        eps: Term that keeps the divisor from zero.

    Example:
        >>> import torch
        >>> LayerNorm().diagonal(torch.tensor([[3.0, 4.0]]))
        tensor([1.0000])
    """

    def __init__(self, eps: float = 1e-5) -> None:
        self.eps = finite_number(eps, "eps", least=0.0)

    def _ops(self) -> Iterator[Op]:
        yield Normalise(self.eps)

    def _finite(self, width: int, outputs: int) -> nn.Module:
        del width, outputs
        return FiniteFunction(partial(channel_norm, eps=self.eps), "norm over channels")

    def _own_spec(self) -> Spec:
        return {"op": "layer_norm", "eps": self.eps}


class Identity(InfiniteNetwork):
    """φ(x) = x.

    Example:
        >>> import torch
        >>> Identity().kernel(torch.tensor([[2.0]]))
        tensor([[4.]])
    """

    def _ops(self) -> Iterator[Op]:
        return iter(())

    def _finite(self, width: int, outputs: int) -> nn.Module:
        del width, outputs
        return nn.Identity()

    def _own_spec(self) -> Spec:
        return {"op": "act", "name": "identity"}


class Dropout(InfiniteNetwork):
    """Dropout as in evaluation: the identity.

    Args:
        p: Share of units that training would drop; it has no effect on the kernel.

    Example:
        >>> import torch
        >>> Dropout(0.3).kernel(torch.tensor([[2.0]]))
        tensor([[4.]])
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = finite_number(p, "p", least=0.0)
        if self.p > 1:
            raise OptionError(f"p must be a share between 0 and 1; got {p!r}.")

    def _ops(self) -> Iterator[Op]:
        return iter(())

    def _finite(self, width: int, outputs: int) -> nn.Module:
        del width, outputs
        return nn.Identity()

    def _own_spec(self) -> Spec:
        return {"op": "dropout", "p": self.p}


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
