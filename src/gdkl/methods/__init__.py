"""Each system of the paper as a short composition of the rooms below."""

from gdkl.methods.data import TrainingData
from gdkl.methods.deep_kernel import DeepKernel, DeepKernelOptions
from gdkl.methods.dkl import fit_dkl
from gdkl.methods.fitted import FittedModel
from gdkl.methods.gdkl import SplitObjective, fit_gdkl
from gdkl.methods.gp_rbf import fit_gp
from gdkl.methods.nngp import fit_nngp

__all__ = [
    "DeepKernel",
    "DeepKernelOptions",
    "FittedModel",
    "SplitObjective",
    "TrainingData",
    "fit_dkl",
    "fit_gdkl",
    "fit_gp",
    "fit_nngp",
]
