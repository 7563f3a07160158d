"""A small search over guides: which infinite network predicts held-out labels best. Only kernels are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gdkl import infinite
from gdkl.gp import ClassLikelihood
from gdkl.guide.fit import fit_class_guide
from gdkl.guide.kernels import as_kernel_function, image_kernel_function
from gdkl.infinite import InfiniteNetwork
from gdkl.numerics import NumericsError

#: Rows that candidates are compared on; a pooled network's kernel takes far longer for a pair than a dense one's.
_MOST_ROWS = 600
_MOST_IMAGES = 256
#: Pixels up to which pooled networks are tried on a CPU; their kernels grow with the square of it.
_MOST_PIXELS_ON_A_CPU = 196


@dataclass(frozen=True)
class Trial:
    """How one guide did, alone, on held-out labels: their mean log probability and its accuracy at its best scale."""

    name: str
    network: InfiniteNetwork
    log_likelihood: float
    accuracy: float
    scale: float
    label_noise_factor: float


def table_guides() -> dict[str, InfiniteNetwork]:
    """Candidates for tables: dense networks of several depths, variances and activations."""
    guides: dict[str, InfiniteNetwork] = {}
    for depth in (1, 3, 5):
        for weight_var, bias_var in ((1.6, 0.2), (2.0, 1.0)):
            name = f"dense ReLU, {depth} hidden, weight_var {weight_var:g}, bias_var {bias_var:g}"
            guides[name] = infinite.mlp(depth, weight_var=weight_var, bias_var=bias_var)
    for weight_var in (1.6, 6.0):
        guides[f"dense erf, 1 hidden, weight_var {weight_var:g}, bias_var 0.2"] = infinite.mlp(
            1, weight_var=weight_var, bias_var=0.2, activation="erf"
        )
    return guides


def image_guides(image_shape: tuple[int, ...], device: torch.device) -> dict[str, InfiniteNetwork]:
    """Candidates for images: dense, convolutional, residual, and pooled where that can be afforded."""
    _, height, width = image_shape
    guides: dict[str, InfiniteNetwork] = {
        f"dense ReLU, {depth} hidden, weight_var 1.6, bias_var 0.2": infinite.mlp(depth) for depth in (1, 3)
    }
    if min(height, width) < 8:
        return guides
    for depth in (2, 4):
        layers = [_convolution() for _ in range(depth)]
        flat = infinite.Sequential(*layers, infinite.Flatten(), infinite.Linear(1.0, 0.0))
        guides[f"conv ReLU, {depth} hidden, flat"] = flat
    guides["wide ResNet, 1 block a group, weight_var 5"] = infinite.wide_resnet(blocks=1)
    if device.type == "cuda" or height * width <= _MOST_PIXELS_ON_A_CPU:
        guides["conv ReLU, 5 hidden, pooled"] = _pooled(height, width)
    return guides


def _convolution() -> InfiniteNetwork:
    return infinite.Sequential(infinite.Conv2d(3, padding="same", weight_var=2.0, bias_var=0.1), infinite.ReLU())


def _pooled(height: int, width: int) -> InfiniteNetwork:
    """Conv, conv and pool while there is something to halve, and a global average at the end."""
    layers: list[InfiniteNetwork] = [_convolution(), _convolution()]
    for _ in range(3):
        if height % 2 or width % 2:
            break
        height, width = height // 2, width // 2
        layers += [infinite.AvgPool2d(2), _convolution()]
    return infinite.Sequential(*layers, infinite.GlobalAvgPool2d(), infinite.Linear(1.0, 0.0))


@torch.no_grad()
def search_guides(
    candidates: Mapping[str, InfiniteNetwork],
    rows: Tensor,
    labels: Tensor,
    n_classes: int,
    *,
    image_shape: tuple[int, ...] | None = None,
    likelihood: ClassLikelihood = ClassLikelihood.DIRICHLET,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> list[Trial]:
    """Try each guide on the same random halvings of the same rows; the best comes first.

    Arguments as for `fit_class_guide`, with networks by name, and the shape of images where the flat rows are images.
    Candidates that cannot be computed are left out; the first's error is raised where none can.
    """
    most = _MOST_ROWS if image_shape is None else _MOST_IMAGES
    order = torch.randperm(rows.shape[1], generator=torch.Generator().manual_seed(seed))[:most].to(rows.device)
    rows, labels = rows[:, order], labels[:, order]
    trials: list[Trial] = []
    failures: list[NumericsError] = []
    for name, network in candidates.items():
        kernel = as_kernel_function(network) if image_shape is None else image_kernel_function(network, image_shape)
        try:
            guide = fit_class_guide(kernel, rows, labels, n_classes, likelihood=likelihood, seed=seed, dtype=dtype)
        except NumericsError as error:
            failures.append(error)
            continue
        found = (guide.score, guide.accuracy, guide.own_scale, guide.label_noise_factor)
        trials.append(Trial(name, network, *(float(value.mean()) for value in found)))
    if not trials:
        raise failures[0]
    return sorted(trials, key=lambda trial: -trial.log_likelihood)
