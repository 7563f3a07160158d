"""Finite feature networks; they know nothing of Gaussian processes."""

from gdkl.nets.augmentation import RandomCrops, crop_indices, recombine, surround
from gdkl.nets.columns import ColumnScale, scales_columns
from gdkl.nets.images import ImageFeatures, images_at_a_time
from gdkl.nets.members import Members
from gdkl.nets.mlp import MLP, PAPER_WIDTHS, WithHead
from gdkl.nets.wide_resnet import WideBlock, WideResNet

__all__ = [
    "MLP",
    "PAPER_WIDTHS",
    "ColumnScale",
    "ImageFeatures",
    "Members",
    "RandomCrops",
    "WideBlock",
    "WideResNet",
    "WithHead",
    "crop_indices",
    "images_at_a_time",
    "recombine",
    "scales_columns",
    "surround",
]
