"""Guides for images by name: infinite networks, and one function, that estimators take as ``guide``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gdkl import infinite
from gdkl.infinite import InfiniteNetwork
from gdkl.numerics import OptionError, chunk_slices

#: Images whose covariances with the others are computed at a time.
_ROWS_AT_A_TIME = 500


def _pooled() -> InfiniteNetwork:
    """Conv, conv, and three times pool and conv, each convolution with a ReLU; then a global average. Needs a GPU."""

    def conv() -> list[InfiniteNetwork]:
        return [infinite.Conv2d(3, padding="same", weight_var=2.0, bias_var=0.1), infinite.ReLU()]

    layers = [*conv(), *conv()]
    for _ in range(3):
        layers += [infinite.AvgPool2d(2), *conv()]
    return infinite.Sequential(*layers, infinite.GlobalAvgPool2d(), infinite.Linear(1.0, 0.0))


def published(x1: Tensor, x2: Tensor) -> Tensor:
    """Four blocks per group over the published runs' layout: images N, C, H, W read as N, H, W, C."""
    network = infinite.wide_resnet(blocks=4)
    # The width holds what is read as channels.
    first, other = (x.permute(0, 3, 1, 2).contiguous() for x in (x1, x2))
    slices = chunk_slices(first.shape[0], _ROWS_AT_A_TIME)
    return torch.cat([network.kernel(first[part], other) for part in slices])


def half_resolution(x1: Tensor, x2: Tensor) -> Tensor:
    """Four blocks per group over images at half resolution, means of 2 × 2 pixels: a sixteenth of the work."""
    first, other = (torch.nn.functional.avg_pool2d(x, 2) for x in (x1, x2))
    return infinite.wide_resnet(blocks=4).kernel(first, other)


_MAKERS: dict[str, Callable[[], Any]] = {
    "dense": lambda: infinite.mlp(3, weight_var=1.6, bias_var=0.2),
    # The paper's wide ResNet without pooling, one or four blocks per group.
    "wide_resnet_1": lambda: infinite.wide_resnet(blocks=1),
    "wide_resnet_4": lambda: infinite.wide_resnet(blocks=4),
    "wide_resnet_4_half": lambda: half_resolution,
    "pooled": _pooled,
    "published": lambda: published,
}

#: Names that `guide` knows.
GUIDES = tuple(_MAKERS)


def guide(name: str) -> Any:
    """The guide of this name."""
    if name not in _MAKERS:
        raise OptionError(f"guide={name!r} is not known: use {', '.join(GUIDES)}.")
    return _MAKERS[name]()
