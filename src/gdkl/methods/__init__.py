"""Each system of the paper as a short composition of the rooms below."""

from gdkl.methods.batch_guide import Surroundings, fit_batch_guide
from gdkl.methods.dkl import fit_dkl
from gdkl.methods.dkl_classes import fit_dkl_classes
from gdkl.methods.dlvkl import CodeOptions, fit_dlvkl, fit_dlvkl_classes
from gdkl.methods.due import SpectralLimit, fit_due, fit_due_classes, fit_sparse_due, fit_sparse_due_classes
from gdkl.methods.gdkl import fit_gdkl, guided_noise_start
from gdkl.methods.gdkl_classes import fit_gdkl_classes
from gdkl.methods.gp_rbf import fit_gp
from gdkl.methods.guides_alone import FEWEST_ROWS, fit_guides_alone
from gdkl.methods.nn import fit_nn
from gdkl.methods.nn_classes import fit_nn_classes
from gdkl.methods.nngp import fit_nngp, fit_relevant_nngp
from gdkl.methods.sparse_dkl import fit_sparse_dkl, fit_sparse_dkl_classes
from gdkl.methods.sparse_gdkl import fit_sparse_gdkl, fit_sparse_gdkl_classes
from gdkl.methods.stacked_classes import fit_stacked_classes
from gdkl.methods.stacked_gdkl import STUDENT, fit_stacked_gdkl

__all__ = [
    "FEWEST_ROWS",
    "STUDENT",
    "CodeOptions",
    "SpectralLimit",
    "Surroundings",
    "fit_batch_guide",
    "fit_dkl",
    "fit_dkl_classes",
    "fit_dlvkl",
    "fit_dlvkl_classes",
    "fit_due",
    "fit_due_classes",
    "fit_gdkl",
    "fit_gdkl_classes",
    "fit_gp",
    "fit_guides_alone",
    "fit_nn",
    "fit_nn_classes",
    "fit_nngp",
    "fit_relevant_nngp",
    "fit_sparse_dkl",
    "fit_sparse_dkl_classes",
    "fit_sparse_due",
    "fit_sparse_due_classes",
    "fit_sparse_gdkl",
    "fit_sparse_gdkl_classes",
    "fit_stacked_classes",
    "fit_stacked_gdkl",
    "guided_noise_start",
]
