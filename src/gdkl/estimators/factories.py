"""Factories: from what users pass as ``feature_net``, ``base_kernel`` and ``guide`` to what a method uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from inspect import signature
from math import prod
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import nn

from gdkl import infinite
from gdkl.guide import GuideKernel
from gdkl.nets import MLP, PAPER_WIDTHS, ImageFeatures, RandomCrops, ResidualMLP
from gdkl.numerics import DataError, OptionError

#: None for the default, hidden and feature widths, a module, or a function from the number of columns to a module.
FeatureNet: TypeAlias = "Sequence[int] | nn.Module | Callable[[int], nn.Module] | None"


def network_builder(feature_net: FeatureNet, *, residual: bool = False) -> Callable[[int], nn.Module]:
    """A function from the number of columns to a fresh network; of widths a perceptron, perhaps a residual one.

    A module is copied, so that the user's own stays as it was; copies after the first, for further members of an
    ensemble, are initialised anew, or all members would be one.
    """
    perceptron = ResidualMLP if residual else MLP
    if feature_net is None:
        return partial(perceptron, widths=PAPER_WIDTHS)
    if isinstance(feature_net, nn.Module):
        return _CopyingBuilder(feature_net)
    if isinstance(feature_net, (list, tuple, np.ndarray)):
        widths: tuple[Any, ...] = tuple(np.asarray(feature_net, dtype=object).ravel())
        if not widths or not all(
            isinstance(w, (int, np.integer)) and not isinstance(w, bool) and w > 0 for w in widths
        ):
            raise OptionError(f"feature_net={feature_net!r}: widths must be positive whole numbers.")
        return partial(perceptron, widths=widths)
    if callable(feature_net):
        return _checked(cast("Callable[[int], Any]", feature_net))
    raise OptionError(
        f"feature_net={feature_net!r} is not allowed: pass None, a list of widths, a torch.nn.Module or a function "
        "from the number of columns, or of the channels of images, to one."
    )


def _checked(build: Callable[[int], Any]) -> Callable[[int], nn.Module]:
    try:
        signature(build).bind(1)
    except TypeError as error:
        raise OptionError(
            f"feature_net must be called with one number, that of the columns, or of the channels of images: {error}."
        ) from error
    except ValueError:
        # What is not written in Python may have no signature.
        pass

    def checked(columns: int) -> nn.Module:
        network = build(columns)
        if not isinstance(network, nn.Module):
            raise DataError(f"feature_net must return a torch.nn.Module; got {type(network).__name__}.")
        return network

    return checked


class _CopyingBuilder:
    def __init__(self, module: nn.Module):
        self.module = module
        self.built = 0

    def __call__(self, columns: int) -> nn.Module:
        network = deepcopy(self.module)
        if self.built > 0:
            for part in network.modules():
                reset = getattr(part, "reset_parameters", None)
                if callable(reset):
                    reset()
        self.built += 1
        for parameter in network.parameters():
            parameter.requires_grad_(True)
        return network


def image_network_builder(
    feature_net: FeatureNet,
    image_shape: tuple[int, ...],
    dtype: torch.dtype,
    *,
    resnet: Callable[[int], nn.Module],
    residual: bool = False,
    augmentation: RandomCrops | None = None,
) -> Callable[[int], nn.Module]:
    """A function to a fresh network over flat rows that are images; it ignores the number of their columns.

    None is ``resnet`` of the number of channels; widths make a perceptron over the pixels.
    """
    channels, pixels = image_shape[0], prod(image_shape)
    if isinstance(feature_net, (list, tuple, np.ndarray)):
        flat = network_builder(cast(FeatureNet, feature_net), residual=residual)
        return lambda _: ImageFeatures(flat(pixels), (pixels,), dtype, augmentation=augmentation)
    build = resnet if feature_net is None else network_builder(feature_net)
    return lambda _: ImageFeatures(build(channels), image_shape, dtype, augmentation=augmentation)


def check_base_kernel(base_kernel: Any) -> Kernel | None:
    """The kernel itself, if it is one."""
    if base_kernel is None or isinstance(base_kernel, Kernel):
        return base_kernel
    raise OptionError(f"base_kernel={base_kernel!r} is not allowed: pass None or a GPyTorch kernel.")


def guide_kernel(guide: Any) -> GuideKernel:
    """The guide's kernel; None is the paper's infinite network for tables."""
    if guide is None:
        return infinite.mlp(hidden_layers=3, weight_var=1.6, bias_var=0.2)
    if isinstance(guide, (infinite.InfiniteNetwork, Kernel)) or (callable(guide) and not isinstance(guide, type)):
        return cast(GuideKernel, guide)
    raise OptionError(
        f"guide={guide!r} is not allowed: pass None, an infinite network (gdkl.infinite), a GPyTorch kernel or a "
        "function k(x1, x2) that returns covariances."
    )
