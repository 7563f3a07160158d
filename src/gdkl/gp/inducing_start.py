"""Where inducing points and the lengthscale start: at the centres and the typical distance of untrained features."""

from __future__ import annotations

import warnings
from typing import Any, cast

import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from gdkl.gp.kernels import GPyTorchKernel
from gdkl.gp.rbf import squared_distances
from gdkl.numerics import DataError

#: Rounds of k-means: the centres move on in training, and only their spread matters at the start.
_ROUNDS = 20

#: Rows whose distances give the lengthscale.
_DISTANCE_ROWS = 1000

#: Copies of a centre lie this part of the features' spread apart: equal locations have a singular kernel matrix.
_APART = 1e-2


@torch.no_grad()
def cluster_centres(features: Tensor, count: int, seed: int) -> Tensor:
    """Centres of k-means over each member's features: from ``(members, n, p)`` to ``(members, count, p)``.

    Example:
        >>> features = torch.tensor([[[0.0], [0.1], [5.0], [5.1]]])
        >>> cluster_centres(features, 2, seed=0).sort(dim=1).values.round(decimals=3).flatten()
        tensor([0.0500, 5.0500])
    """
    n = features.shape[1]
    if count > n:
        raise DataError(f"n_inducing={count} is more than the {n} rows that it starts from: use fewer inducing points.")
    centres: list[Tensor] = []
    for one in features.detach().double().cpu():
        with warnings.catch_warnings():
            # Fewer distinct rows than centres: the copies are moved apart below.
            warnings.simplefilter("ignore", ConvergenceWarning)
            fit = cast(Any, KMeans)(count, n_init=1, max_iter=_ROUNDS, random_state=seed).fit(one.numpy())
        found = torch.as_tensor(fit.cluster_centers_, dtype=torch.float64)
        spread = one.std(dim=0, correction=0)
        shift = torch.randn(found.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        # Equal to an earlier one.
        near = squared_distances(found) <= 1e-20 * found.square().sum(dim=-1, keepdim=True)
        repeated = near.tril(diagonal=-1).any(dim=-1, keepdim=True)
        centres.append(torch.where(repeated, found + _APART * spread * shift, found))
    return torch.stack(centres).to(features)


@torch.no_grad()
def start_kernel(kernel: GPyTorchKernel, features: Tensor, output_scale: float | Tensor) -> None:
    """Give the default kernel first values: the mean distance of two rows, an output scale. Others keep theirs.

    Features are ``(members, n, p)``; the output scale is one for all or one per member and output.
    """
    inner = kernel.kernel
    if not isinstance(inner, ScaleKernel) or not isinstance(inner.base_kernel, RBFKernel):
        return
    some = features[:, :_DISTANCE_ROWS].double()
    n = some.shape[1]
    # Two distinct rows of n(n − 1) ordered pairs.
    mean_distance = squared_distances(some).sqrt().sum(dim=(-2, -1)) / max(1, n * (n - 1))
    lengthscale = mean_distance.clamp_min(1e-3)[:, None, None, None].expand_as(inner.base_kernel.lengthscale)
    inner.base_kernel.initialize(lengthscale=lengthscale.to(inner.base_kernel.lengthscale).clone())
    scale = torch.as_tensor(output_scale).to(inner.outputscale)
    inner.initialize(outputscale=scale.expand_as(inner.outputscale).clone())
