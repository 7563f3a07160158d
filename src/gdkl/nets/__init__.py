"""Finite feature networks; they know nothing of Gaussian processes."""

from gdkl.nets.augmentation import RandomCrops, crop_indices, recombine, surround
from gdkl.nets.columns import ColumnScale, scales_columns, with_columns
from gdkl.nets.encoder import GaussianEncoder, PrincipalComponents, code_samples, draw_codes, split_codes
from gdkl.nets.images import ImageFeatures, images_at_a_time
from gdkl.nets.members import Members
from gdkl.nets.mlp import MLP, PAPER_WIDTHS, ResidualMLP, WithHead
from gdkl.nets.spectral import SpectralLayer, SpectralNetwork, converge_norms
from gdkl.nets.trial import try_network
from gdkl.nets.wide_resnet import WideBlock, WideResNet

__all__ = [
    "MLP",
    "PAPER_WIDTHS",
    "ColumnScale",
    "GaussianEncoder",
    "ImageFeatures",
    "Members",
    "PrincipalComponents",
    "RandomCrops",
    "ResidualMLP",
    "SpectralLayer",
    "SpectralNetwork",
    "WideBlock",
    "WideResNet",
    "WithHead",
    "code_samples",
    "converge_norms",
    "crop_indices",
    "draw_codes",
    "images_at_a_time",
    "recombine",
    "scales_columns",
    "split_codes",
    "surround",
    "try_network",
    "with_columns",
]
