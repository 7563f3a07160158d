"""Infinite-width networks in PyTorch: layers in, NNGP and NTK covariances out."""

from gdkl.infinite.arrays import unchecked
from gdkl.infinite.builders import mlp, wide_resnet
from gdkl.infinite.conv import Conv2d
from gdkl.infinite.elementwise import Elementwise
from gdkl.infinite.erf import Erf, SigmoidLike
from gdkl.infinite.gaussian import Gaussian
from gdkl.infinite.gelu import GELU
from gdkl.infinite.gpytorch_kernel import InfiniteWidthKernel
from gdkl.infinite.identity import Dropout, Identity
from gdkl.infinite.linear import Linear
from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.norm import LayerNorm
from gdkl.infinite.piecewise import ABReLU, Abs, LeakyReLU, ReLU, Sign
from gdkl.infinite.pooling import AvgPool2d, Flatten, GlobalAvgPool2d
from gdkl.infinite.residual import Residual
from gdkl.infinite.sequential import Sequential
from gdkl.infinite.spec import from_spec
from gdkl.infinite.tiles import tiled_kernel
from gdkl.infinite.traced import from_torch
from gdkl.infinite.waves import RBF, Cos, Sin

__all__ = [
    "GELU",
    "RBF",
    "ABReLU",
    "Abs",
    "AvgPool2d",
    "Conv2d",
    "Cos",
    "Dropout",
    "Elementwise",
    "Erf",
    "Flatten",
    "Gaussian",
    "GlobalAvgPool2d",
    "Identity",
    "InfiniteNetwork",
    "InfiniteWidthKernel",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "ReLU",
    "Residual",
    "Sequential",
    "SigmoidLike",
    "Sign",
    "Sin",
    "from_spec",
    "from_torch",
    "mlp",
    "tiled_kernel",
    "unchecked",
    "wide_resnet",
]
