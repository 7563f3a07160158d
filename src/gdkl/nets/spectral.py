"""Soft spectral normalisation: layers whose operator norm a coefficient limits (Gouk et al., 2018).

A layer's map is W·x (a matrix, or a convolution of inputs of their real size). With the leading singular vectors u and
v of W its norm is σ = uᵀWv, and the layer applies W / max(1, σ / c): weights within the limit are left as they are. One
power iteration or a few per training step keep u and v near the vectors of the weights, which move slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gdkl.nets.members import Members
from gdkl.nets.trial import try_network
from gdkl.numerics import OptionError

#: Power iterations on the first weights: training goes on from vectors that are nearly right.
_FIRST_ITERATIONS = 15

#: Dimension of a Krylov space, how many of them one after the other, and the relative gain of σ² that ends the search.
_KRYLOV, _RESTARTS, _GAIN = 20, 50, 1e-6


class SpectralLayer(nn.Module):
    """What normalised layers share; ``u`` and ``v`` are buffers, of the shape of one output and one input."""

    coefficient: float
    power_iterations: int
    weight: Tensor
    u: Tensor
    v: Tensor

    def limit(self, input_shape: torch.Size, coefficient: float, power_iterations: int) -> None:
        """Start from random vectors for inputs of a shape, ``(columns,)`` or ``(channels, height, width)``."""
        self.coefficient, self.power_iterations = coefficient, power_iterations
        # Drawn on the CPU in float32 whatever torch's default is: a seed means the same everywhere.
        v = F.normalize(torch.randn(prod(input_shape), dtype=torch.float32), dim=0).view(input_shape).to(self.weight)
        self.register_buffer("v", v)
        self.register_buffer("u", torch.zeros_like(self.apply_map(v)))
        self._iterate(_FIRST_ITERATIONS)

    def apply_map(self, v: Tensor) -> Tensor:
        """W·v of one input."""
        raise NotImplementedError

    def apply_adjoint(self, u: Tensor) -> Tensor:
        """Wᵀ·u of one output."""
        raise NotImplementedError

    def norm(self) -> Tensor:
        """σ by the present vectors, with a gradient to the weights; never above the operator norm."""
        # Copies: the next step moves the vectors in place, while this graph may still be needed.
        return (self.u.clone() * self.apply_map(self.v.clone())).sum()

    def limited_weight(self) -> Tensor:
        """The weights as they are applied."""
        # In bfloat16 a norm would have two digits.
        with torch.autocast(self.weight.device.type, enabled=False):
            if self.training:
                self._iterate(self.power_iterations)
            return self.weight / (self.norm() / self.coefficient).clamp_min(1.0)

    @torch.no_grad()
    def converge(self) -> None:
        """Take u and v to the leading singular vectors, by a Lanczos method from where they are."""
        v = leading_vector(lambda x: self.apply_adjoint(self.apply_map(x)), self.v)
        self.v.copy_(v)
        self.u.copy_(_unit(self.apply_map(v)))

    @torch.no_grad()
    def _iterate(self, count: int) -> None:
        v = self.v
        for _ in range(count):
            found = _unit(self.apply_adjoint(_unit(self.apply_map(v))))
            # Weights of zero, as some layers start with, have no vectors; they may be learned all the same.
            v = torch.where((found == 0).all(), v, found)
        # σ is then ‖Wv‖, the better of the two estimates.
        self.v.copy_(v)
        self.u.copy_(_unit(self.apply_map(v)))


class SpectralLinear(SpectralLayer, nn.Linear):
    """`torch.nn.Linear` with its norm limited."""

    def apply_map(self, v: Tensor) -> Tensor:
        """W·v."""
        return self.weight @ v

    def apply_adjoint(self, u: Tensor) -> Tensor:
        """Wᵀ·u."""
        return self.weight.mT @ u

    def forward(self, input: Tensor) -> Tensor:
        """The layer with its limited weights."""
        return F.linear(input, self.limited_weight(), self.bias)


class SpectralConv2d(SpectralLayer, nn.Conv2d):
    """`torch.nn.Conv2d` with the norm of its map limited, for images of the size that it sees."""

    def limit(self, input_shape: torch.Size, coefficient: float, power_iterations: int) -> None:
        """As for every layer; refuses padding that is no number of zeros."""
        if isinstance(self.padding, str) or self.padding_mode != "zeros":
            raise OptionError(
                f"a convolution with padding={self.padding!r} and padding_mode={self.padding_mode!r} cannot be "
                "normalised: give feature_net convolutions that are padded with a number of zeros."
            )
        super().limit(input_shape, coefficient, power_iterations)

    def apply_map(self, v: Tensor) -> Tensor:
        """The convolution of one image, without bias."""
        return F.conv2d(
            v[None], self.weight, None, self.stride, cast("tuple[int, int]", self.padding), self.dilation, self.groups
        )[0]

    def apply_adjoint(self, u: Tensor) -> Tensor:
        """The transposed convolution, back to the size of the input."""
        pads = cast("tuple[int, int]", self.padding)
        reached = [
            (out - 1) * stride - 2 * pad + dilation * (size - 1) + 1
            for out, stride, pad, dilation, size in zip(
                u.shape[1:], self.stride, pads, self.dilation, self.kernel_size, strict=True
            )
        ]
        # Lines of the input that the last stride does not reach.
        left = [size - found for size, found in zip(self.v.shape[-2:], reached, strict=True)]
        return F.conv_transpose2d(u[None], self.weight, None, self.stride, pads, left, self.groups, self.dilation)[0]

    def forward(self, input: Tensor) -> Tensor:
        """The layer with its limited weights."""
        return self._conv_forward(input, self.limited_weight(), self.bias)


class _SpectralNorm(nn.Module):
    """A batch norm whose largest factor |γ|/σ, by its running variance, is limited."""

    coefficient: float

    def forward(self, input: Tensor) -> Tensor:
        """The layer with γ divided by what its largest factor is above the limit."""
        own = cast(nn.BatchNorm2d, self)
        own._check_input_dim(input)
        variance, momentum = cast(Tensor, own.running_var), cast(float, own.momentum)
        weight = own.weight if own.affine else torch.ones_like(variance)
        largest = (weight * (variance + own.eps).rsqrt()).abs().amax()
        weight = weight / (largest / self.coefficient).clamp_min(1.0)
        return F.batch_norm(input, own.running_mean, variance, weight, own.bias, self.training, momentum, own.eps)


class SpectralBatchNorm1d(_SpectralNorm, nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` with its largest factor limited."""


class SpectralBatchNorm2d(_SpectralNorm, nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` with its largest factor limited."""


_LIMITED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: SpectralLinear,
    nn.Conv2d: SpectralConv2d,
    nn.BatchNorm1d: SpectralBatchNorm1d,
    nn.BatchNorm2d: SpectralBatchNorm2d,
}


class SpectralNetwork(nn.Module):
    """A network over rows whose linear layers, convolutions and batch norms are limited; it changes the network itself.

    Layers of other types stay as they are, as do batch norms that keep no running variance.

    Args:
        network: Takes rows ``(n, columns)``; of images flat rows.
        columns: Their number. One pass of zeros tells the size of the images that each convolution sees.
        coefficient: Largest norm of a layer.
        power_iterations: Per training step.

    Example:
        >>> net = SpectralNetwork(nn.Linear(3, 2), 3, coefficient=0.1)
        >>> _ = net.converge()
        >>> bool(torch.linalg.matrix_norm(net.network.limited_weight(), 2) < 0.1001)
        True
    """

    def __init__(self, network: nn.Module, columns: int, coefficient: float = 3.0, power_iterations: int = 1):
        super().__init__()
        self.network = network
        self.columns, self.coefficient, self.power_iterations = columns, coefficient, power_iterations
        for layer, shape in _input_shapes(network, columns).items():
            # As torch's own parametrisations do: parameters, hooks and names stay.
            cast(Any, layer).__class__ = _LIMITED[type(layer)]
            if isinstance(layer, SpectralLayer):
                layer.limit(shape, coefficient, power_iterations)
            else:
                cast(_SpectralNorm, layer).coefficient = coefficient

    def forward(self, rows: Tensor) -> Tensor:
        """Features of rows ``(n, columns)``."""
        return self.network(rows)

    def converge(self) -> SpectralNetwork:
        """Take the vectors of every layer to convergence."""
        for layer in self.modules():
            if isinstance(layer, SpectralLayer):
                layer.converge()
        return self


def converge_norms(networks: Members) -> None:
    """`SpectralNetwork.converge` of all members, in place."""
    for index in range(networks.count):
        one = networks if networks.count == 1 else networks.select(slice(index, index + 1))
        cast(SpectralNetwork, one.single).converge()


def leading_vector(apply: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """The unit vector that a positive semidefinite linear map stretches most, of the shape of ``start``.

    The best vector of a Krylov space, then of the one that begins with it, until nothing is gained: where the leading
    eigenvalues lie close together, as those of a convolution do, power iterations would take thousands of steps.

    Example:
        >>> D = torch.tensor([1.0, 5.0, 4.9])
        >>> leading_vector(lambda x: D * x, torch.ones(3)).abs().round(decimals=3)
        tensor([0., 1., 0.])
    """
    best, v = 0.0, _unit(start)
    for _ in range(_RESTARTS):
        basis, images = [v.flatten()], [apply(v).flatten()]
        while len(basis) < min(_KRYLOV, v.numel()):
            known, w = torch.stack(basis), images[-1]
            for _ in range(2):  # twice is enough for vectors that are orthogonal to rounding
                w = w - known.mT @ (known @ w)
            size = w.norm()
            if size <= 1e-6 * images[-1].norm():
                break
            basis.append(w / size)
            images.append(apply(basis[-1].view_as(v)).flatten())
        known = torch.stack(basis)
        T = known @ torch.stack(images).mT
        values, vectors = torch.linalg.eigh(0.5 * (T + T.mT))
        v, found = _unit((known.mT @ vectors[:, -1]).view_as(v)), float(values[-1])
        if found <= (1 + _GAIN) * best:
            break
        best = found
    return v


def _unit(x: Tensor) -> Tensor:
    """A tensor over its length; zeros stay."""
    return x / torch.linalg.vector_norm(x).clamp_min(torch.finfo(x.dtype).tiny)


def _input_shapes(network: nn.Module, columns: int) -> dict[nn.Module, torch.Size]:
    """The largest input that each layer that can be limited sees, without the dimension of the rows."""
    found: dict[nn.Module, torch.Size] = {}

    def note(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        shape = cast(Tensor, inputs[0]).shape
        shape = shape[-1:] if isinstance(layer, nn.Linear) else shape[1:]
        if layer not in found or shape.numel() > found[layer].numel():
            found[layer] = shape

    limited = [layer for layer in network.modules() if type(layer) in _LIMITED and _can_be_limited(layer)]
    hooks = [layer.register_forward_pre_hook(note) for layer in limited]
    try:
        try_network(network, columns)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _can_be_limited(layer: nn.Module) -> bool:
    if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
        return layer.running_var is not None and layer.momentum is not None
    return True
