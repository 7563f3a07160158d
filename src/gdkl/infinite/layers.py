"""Layers that act on each pixel alone, layers one after another, and sums of branches."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import cast

import torch
from torch import nn

from gdkl.infinite.activation import Activation
from gdkl.infinite.arrays import finite_number, scale_columns
from gdkl.infinite.elementwise import Elementwise
from gdkl.infinite.finite import FiniteFunction, FiniteLinear, FiniteResidual, channel_norm
from gdkl.infinite.network import InfiniteNetwork, Spec
from gdkl.infinite.program import Activate, Add, Affine, Convolve, Normalise, Op, Save, Scale, Swap
from gdkl.numerics import OptionError


class Linear(InfiniteNetwork):
    """A fully connected layer: K ← w·K + b, T ← K + w·T; on images, on the channels of each pixel.

    Here w is ``weight_var``, the variance of the weights before division by the number of inputs, and b ``bias_var``.
    The first layer of a network of vectors may have one weight variance per column, such as relevances squared.

    Example:
        >>> Linear(weight_var=2.0, bias_var=0.5).kernel(torch.tensor([[1.0, 1.0]]))
        tensor([[2.5000]])
        >>> Linear(weight_var=[1.0, 3.0]).kernel(torch.tensor([[0.0, 1.0]]))
        tensor([[1.5000]])
    """

    _has_weights = True

    def __init__(self, weight_var: float | Iterable[float] = 1.0, bias_var: float = 0.0) -> None:
        self.weight_var: float | tuple[float, ...]
        if isinstance(weight_var, Iterable) and not isinstance(weight_var, str) and getattr(weight_var, "ndim", 1) > 0:
            self.weight_var = tuple(finite_number(value, "weight_var", least=0.0) for value in weight_var)
        else:
            self.weight_var = finite_number(cast(float, weight_var), "weight_var", least=0.0)
        self.bias_var = finite_number(bias_var, "bias_var", least=0.0)

    def _ops(self) -> Iterator[Op]:
        if isinstance(self.weight_var, tuple):
            yield Scale(self.weight_var)
        yield Affine(1.0 if isinstance(self.weight_var, tuple) else self.weight_var, self.bias_var)

    def _finite(self, width: int, outputs: int) -> nn.Module:
        if not isinstance(self.weight_var, tuple):
            return FiniteLinear(outputs, self.weight_var, self.bias_var)
        scale = FiniteFunction(partial(scale_columns, variances=self.weight_var), "a factor per column")
        return nn.Sequential(scale, FiniteLinear(outputs, 1.0, self.bias_var))

    def _own_spec(self) -> Spec:
        w = list(self.weight_var) if isinstance(self.weight_var, tuple) else self.weight_var
        return {"op": "dense", "w_var": w, "b_var": self.bias_var}


class LayerNorm(InfiniteNetwork):
    """Normalisation of each pixel, or each vector, over its channels: K ← K / √((q1 + eps)(q2 + eps)).

    Correlations stay as they are; eps keeps the divisor from zero. No mean is subtracted: behind weights, where it is
    zero over infinitely many channels, that is the usual layer norm, and elsewhere a root-mean-square norm.

    Example:
        >>> LayerNorm().diagonal(torch.tensor([[3.0, 4.0]]))
        tensor([1.0000])
    """

    def __init__(self, eps: float = 1e-5) -> None:
        self.eps = finite_number(eps, "eps", least=0.0)

    def _ops(self) -> Iterator[Op]:
        yield Normalise(self.eps)

    def _finite(self, width: int, outputs: int) -> nn.Module:
        return FiniteFunction(partial(channel_norm, eps=self.eps), "norm over channels")

    def _own_spec(self) -> Spec:
        return {"op": "layer_norm", "eps": self.eps}


class Identity(InfiniteNetwork):
    """φ(x) = x.

    Example:
        >>> Identity().kernel(torch.tensor([[2.0]]))
        tensor([[4.]])
    """

    def _ops(self) -> Iterator[Op]:
        return iter(())

    def _finite(self, width: int, outputs: int) -> nn.Module:
        return nn.Identity()

    def _own_spec(self) -> Spec:
        return {"op": "act", "name": "identity"}


class Dropout(Identity):
    """Dropout as in evaluation, the identity: the share p that training would drop has no effect on the kernel.

    Example:
        >>> Dropout(0.3).kernel(torch.tensor([[2.0]]))
        tensor([[4.]])
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = finite_number(p, "p", least=0.0)
        if self.p > 1:
            raise OptionError(f"p must be a share between 0 and 1; got {p!r}.")

    def _own_spec(self) -> Spec:
        return {"op": "dropout", "p": self.p}


class Sequential(InfiniteNetwork):
    """Layers, or networks, one after another.

    Example:
        >>> import gdkl.infinite as inf
        >>> len(inf.Sequential(inf.Linear(weight_var=1.6, bias_var=0.2), inf.ReLU(), inf.Linear()).layers)
        3
    """

    def __init__(self, *layers: InfiniteNetwork) -> None:
        for layer in layers:
            if not isinstance(layer, InfiniteNetwork):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise OptionError(f"a layer must be one of gdkl.infinite's; got {type(layer).__name__}.")
        self.layers, self._has_weights = layers, any(layer._has_weights for layer in layers)

    def to_spec(self) -> list[Spec]:
        """The layers of all parts in one flat list."""
        return [spec for layer in self.layers for spec in layer.to_spec()]

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


class Residual(InfiniteNetwork):
    """Two branches from the same input, added: K ← K_main + K_shortcut.

    That is the covariance of the sum where the branches do not correlate: one of them must have weights of its own on
    every path, with no activation of nonzero mean behind them, or an `OptionError` is raised. What comes before the
    sum is not known here; `from_torch`, which knows it, checks the rest.

    Args:
        main: The one branch.
        shortcut: The other; None for the identity.

    Example:
        >>> import gdkl.infinite as inf
        >>> inf.Residual(inf.Sequential(inf.ReLU(), inf.Linear())).kernel(torch.tensor([[2.0]]))
        tensor([[6.]])
    """

    def __init__(self, main: InfiniteNetwork, shortcut: InfiniteNetwork | None = None) -> None:
        self.main = main if isinstance(main, Sequential) else Sequential(main)
        other = Sequential() if shortcut is None else shortcut
        self.shortcut = other if isinstance(other, Sequential) else Sequential(other)
        self._has_weights = self.main._has_weights or self.shortcut._has_weights
        if not meets_weights(self.main) and not meets_weights(self.shortcut):
            raise OptionError(
                "neither branch of a Residual has weights of its own, so they correlate: put a Linear or Conv2d "
                "into one."
            )
        if _ends_off_centre(self.main) and _ends_off_centre(self.shortcut):
            raise OptionError(
                "both branches of a Residual end in an activation of nonzero mean, so they correlate: end "
                "one in a Linear or Conv2d."
            )

    def _ops(self) -> Iterator[Op]:
        yield Save()
        yield from self.main._ops()
        yield Swap()
        yield from self.shortcut._ops()
        yield Add()

    def _finite(self, width: int, outputs: int) -> nn.Module:
        # Both branches end in the channels that come in or in ``width``: the last one decides nothing here.
        return FiniteResidual(self.main._finite(width, width), self.shortcut._finite(width, width))

    def _own_spec(self) -> Spec:
        return {"op": "residual", "main": self.main.to_spec(), "shortcut": self.shortcut.to_spec()}

    def __repr__(self) -> str:
        return f"Residual(main={self.main!r}, shortcut={self.shortcut!r})"


def _fact(
    net: InfiniteNetwork, step: Callable[[Op, bool], bool], join: Callable[[bool, bool], bool], *, fresh: bool
) -> bool:
    """A fact of a network's output, from false on; ``fresh`` branches know nothing of what comes before them."""
    fact, stack = False, list[bool]()
    for op in net._ops():
        if isinstance(op, Save):
            fact = fact and not fresh
            stack.append(fact)
        elif isinstance(op, Swap):
            fact, stack[-1] = stack[-1], fact
        else:
            fact = join(stack.pop(), fact) if isinstance(op, Add) else step(op, fact)
    return fact


def meets_weights(net: InfiniteNetwork) -> bool:
    """Whether every path through a network meets weights, which make its units independent of what went in."""
    return _fact(net, lambda op, met: met or isinstance(op, Affine | Convolve), operator.and_, fresh=False)


def is_odd(activation: Activation) -> bool:
    """Whether φ(−x) = −φ(x), so that units of a symmetric distribution keep mean zero."""
    x = torch.linspace(0.05, 12.0, 240, dtype=torch.float64)
    with torch.no_grad():
        right, left = activation.function(x), activation.function(-x)
    return bool(((right + left).abs() <= 1e-12 * (right.abs() + left.abs())).all())


def _ends_off_centre(net: InfiniteNetwork) -> bool:
    """Whether the output surely has a nonzero mean over its units, for inputs of zero mean."""

    def step(op: Op, off: bool) -> bool:
        if isinstance(op, Activate) and isinstance(op.function, Activation) and not is_odd(op.function):
            # The mean of a function given by the user may be zero though it is not odd.
            return not isinstance(op.function, Elementwise)
        return off and not isinstance(op, Affine | Convolve)

    return _fact(net, step, operator.or_, fresh=True)
