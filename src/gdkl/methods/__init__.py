"""Each system of the paper as a short composition of the rooms below."""

from gdkl.methods.calibrated_gdkl import fast_options, fit_calibrated_gdkl
from gdkl.methods.class_data import ClassData
from gdkl.methods.cost import Cost, exact_cost, prefers_exact
from gdkl.methods.data import TrainingData
from gdkl.methods.deep_kernel import DeepKernel, DeepKernelOptions
from gdkl.methods.dkl import fit_dkl
from gdkl.methods.dkl_classes import fit_dkl_classes
from gdkl.methods.fitted import FittedModel
from gdkl.methods.gdkl import (
    DEFAULT_LEARNING_RATE,
    DEFAULT_SPLIT_POOL,
    DEFAULT_STEPS,
    SplitObjective,
    fit_gdkl,
)
from gdkl.methods.gdkl_classes import fit_gdkl_classes, image_beta
from gdkl.methods.gp_rbf import fit_gp
from gdkl.methods.held_out_noise import held_out_rows
from gdkl.methods.nn_classes import FittedNetwork, fit_nn_classes
from gdkl.methods.nngp import fit_nngp
from gdkl.methods.nngp_classes import fit_nngp_classes
from gdkl.methods.sparse_deep_kernel import SparseDeepKernel, SparseOptions
from gdkl.methods.sparse_dkl import fit_sparse_dkl, fit_sparse_dkl_classes
from gdkl.methods.sparse_gdkl import fit_sparse_gdkl, fit_sparse_gdkl_classes

__all__ = [
    "DEFAULT_LEARNING_RATE",
    "DEFAULT_SPLIT_POOL",
    "DEFAULT_STEPS",
    "ClassData",
    "Cost",
    "DeepKernel",
    "DeepKernelOptions",
    "FittedModel",
    "FittedNetwork",
    "SparseDeepKernel",
    "SparseOptions",
    "SplitObjective",
    "TrainingData",
    "exact_cost",
    "fast_options",
    "fit_calibrated_gdkl",
    "fit_dkl",
    "fit_dkl_classes",
    "fit_gdkl",
    "fit_gdkl_classes",
    "fit_gp",
    "fit_nn_classes",
    "fit_nngp",
    "fit_nngp_classes",
    "fit_sparse_dkl",
    "fit_sparse_dkl_classes",
    "fit_sparse_gdkl",
    "fit_sparse_gdkl_classes",
    "held_out_rows",
    "image_beta",
    "prefers_exact",
]
