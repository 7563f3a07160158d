"""Infinite-width networks in PyTorch: layers in, NNGP and NTK covariances out."""

from gdkl.infinite.arrays import unchecked
from gdkl.infinite.chain import DenseChain, Pullback, RBFLayer, closed_form
from gdkl.infinite.elementwise import Elementwise
from gdkl.infinite.error_functions import GELU, Erf, SigmoidLike
from gdkl.infinite.gpytorch_kernel import InfiniteWidthKernel
from gdkl.infinite.image_layers import AvgPool2d, Conv2d, Flatten, GlobalAvgPool2d
from gdkl.infinite.layers import Dropout, Identity, LayerNorm, Linear, Residual, Sequential
from gdkl.infinite.network import InfiniteNetwork
from gdkl.infinite.piecewise import ABReLU, Abs, LeakyReLU, ReLU, Sign
from gdkl.infinite.spec import from_spec, mlp, wide_resnet
from gdkl.infinite.tiles import tiled_kernel
from gdkl.infinite.traced import from_torch
from gdkl.infinite.waves import RBF, Cos, Gaussian, Sin

__all__ = [
    "GELU",
    "RBF",
    "ABReLU",
    "Abs",
    "AvgPool2d",
    "Conv2d",
    "Cos",
    "DenseChain",
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
    "Pullback",
    "RBFLayer",
    "ReLU",
    "Residual",
    "Sequential",
    "SigmoidLike",
    "Sign",
    "Sin",
    "closed_form",
    "from_spec",
    "from_torch",
    "mlp",
    "tiled_kernel",
    "unchecked",
    "wide_resnet",
]
