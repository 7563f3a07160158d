"""Gaussian-process algebra that knows no network: kernels, noise, exact posteriors."""

from gdkl.gp.exact import (
    ExactPosterior,
    Marginals,
    Split,
    add_noise,
    condition,
    take_rows,
    take_targets,
)
from gdkl.gp.kernels import GPyTorchKernel, KernelFunction, ScaledKernel, rbf_kernel, squared_distances
from gdkl.gp.noise import NOISE_FLOOR, NOISE_START, Noise

__all__ = [
    "NOISE_FLOOR",
    "NOISE_START",
    "ExactPosterior",
    "GPyTorchKernel",
    "KernelFunction",
    "Marginals",
    "Noise",
    "ScaledKernel",
    "Split",
    "add_noise",
    "condition",
    "rbf_kernel",
    "squared_distances",
    "take_rows",
    "take_targets",
]
