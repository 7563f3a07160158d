"""Gaussian-process algebra that knows no network: kernels, noise, exact and inducing-point posteriors."""

from gdkl.gp.conditioning import condition, evidence_terms
from gdkl.gp.exact import ExactPosterior, Split, take_noise, take_rows, take_targets
from gdkl.gp.inducing_start import cluster_centres, start_kernel
from gdkl.gp.kernels import (
    GPyTorchKernel,
    KernelFunction,
    ScaledKernel,
    is_softplus_rbf,
    rbf_kernel,
    softplus_rbf_kernel,
)
from gdkl.gp.labels import (
    PREDICTION_SAMPLES,
    ClassLikelihood,
    LabelTargets,
    LeftOut,
    base_samples,
    class_log_probs,
    label_targets,
)
from gdkl.gp.noise import NOISE_FLOOR, NOISE_START, Noise
from gdkl.gp.rbf import squared_distances
from gdkl.gp.solver import Marginals, Solver, floor_variance, per_row
from gdkl.gp.sparse import InducingPoints, SparsePosterior
from gdkl.gp.split_posterior import rbf_split_posterior

__all__ = [
    "NOISE_FLOOR",
    "NOISE_START",
    "PREDICTION_SAMPLES",
    "ClassLikelihood",
    "ExactPosterior",
    "GPyTorchKernel",
    "InducingPoints",
    "KernelFunction",
    "LabelTargets",
    "LeftOut",
    "Marginals",
    "Noise",
    "ScaledKernel",
    "Solver",
    "SparsePosterior",
    "Split",
    "base_samples",
    "class_log_probs",
    "cluster_centres",
    "condition",
    "evidence_terms",
    "floor_variance",
    "is_softplus_rbf",
    "label_targets",
    "per_row",
    "rbf_kernel",
    "rbf_split_posterior",
    "softplus_rbf_kernel",
    "squared_distances",
    "start_kernel",
    "take_noise",
    "take_rows",
    "take_targets",
]
