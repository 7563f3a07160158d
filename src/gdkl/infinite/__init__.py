"""Infinite-width networks in PyTorch: layers in, NNGP and NTK covariances out."""

from gdkl.infinite.builders import mlp
from gdkl.infinite.erf import Erf, Identity
from gdkl.infinite.linear import Linear
from gdkl.infinite.network import InfiniteNetwork, Sequential
from gdkl.infinite.piecewise import ABReLU, Abs, LeakyReLU, ReLU, Sign
from gdkl.infinite.spec import from_spec

__all__ = [
    "ABReLU",
    "Abs",
    "Erf",
    "Identity",
    "InfiniteNetwork",
    "LeakyReLU",
    "Linear",
    "ReLU",
    "Sequential",
    "Sign",
    "from_spec",
    "mlp",
]
