"""Finite feature networks; they know nothing of Gaussian processes."""

from gdkl.nets.images import ImageFeatures, images_at_a_time
from gdkl.nets.members import Members
from gdkl.nets.mlp import MLP, PAPER_WIDTHS
from gdkl.nets.mlp_pass import mlp_backward, mlp_forward
from gdkl.nets.moves import RandomMoves, random_windows
from gdkl.nets.wide_resnet import WideBlock, WideResNet, blocks_a_group

__all__ = [
    "MLP",
    "PAPER_WIDTHS",
    "ImageFeatures",
    "Members",
    "RandomMoves",
    "WideBlock",
    "WideResNet",
    "blocks_a_group",
    "images_at_a_time",
    "mlp_backward",
    "mlp_forward",
    "random_windows",
]
