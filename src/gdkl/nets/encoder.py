"""Stochastic encoders: networks whose outputs are the means and variances of Gaussian codes."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from math import expm1, log
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.quasirandom import SobolEngine

from gdkl.nets.trial import example_of, try_network

#: Smallest variance of a code: its logarithm is taken.
_FLOOR = 1e-6

#: About where variances of codes start: below the distances of untrained means, or no code would be near another.
_START = 0.01

#: Of the least squares that an encoder starts from, over the features' mean square.
_RIDGE = 1e-2


class GaussianEncoder(nn.Module):
    """A feature network and a linear layer to codes: one half of its outputs are means, the other gives variances.

    Args:
        network: Over rows ``(n, columns)``.
        columns: Their number.
        codes: Dimensions of a code.

    Example:
        >>> mean, variance = split_codes(GaussianEncoder(nn.Linear(3, 8), 3, codes=5)(torch.zeros(2, 3)))
        >>> mean.shape, bool((variance > 0).all())
        (torch.Size([2, 5]), True)
    """

    def __init__(self, network: nn.Module, columns: int, codes: int):
        super().__init__()
        self.network = network
        self.columns, self.codes = columns, codes
        features = try_network(network, columns).shape[-1]
        # Drawn in float32 whatever torch's default is: a seed means the same weights everywhere.
        self.head = nn.Linear(features, 2 * codes, dtype=torch.float32)
        with torch.no_grad():
            self.head.bias[codes:] += log(expm1(_START))

    @torch.no_grad()
    def start_at(self, rows: Tensor, means: Tensor) -> GaussianEncoder:
        """Start where the linear layer brings the means of codes nearest to given ones, in the least squares.

        Codes that lie together at first and are then drawn apart by their prior leave the inducing points behind, and
        the kernel between them is zero: nothing would be learned.

        Args:
            rows: ``(n, columns)``.
            means: ``(n, codes)``.
        """
        like = self.head.weight
        # As training sees them, by a copy whose statistics are discarded.
        features = deepcopy(self.network).train()(rows.to(example_of(self.network))).double()
        means, mean = means.to(features), features.mean(dim=0)
        centred = features - mean
        squares = centred.mT @ centred
        ridge = _RIDGE * squares.diagonal().mean().clamp_min(torch.finfo(squares.dtype).tiny)
        squares.diagonal().add_(ridge)
        weight = torch.linalg.solve(squares, centred.mT @ (means - means.mean(dim=0))).mT
        self.head.weight[: self.codes] = weight.to(like)
        self.head.bias[: self.codes] = (means.mean(dim=0) - weight @ mean).to(like)
        return self

    def forward(self, rows: Tensor) -> Tensor:
        """Means and variances of the codes, one after the other, ``(n, 2 · codes)``."""
        features = self.network(rows)
        found = self.head(features.to(self.head.weight.dtype)).to(features.dtype)
        mean, raw = found.chunk(2, dim=-1)
        return torch.cat([mean, _FLOOR + softplus(raw)], dim=-1)


def split_codes(encoded: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances ``(..., n, codes)`` of what an encoder returns."""
    mean, variance = encoded.chunk(2, dim=-1)
    return mean, variance


def draw_codes(encoded: Tensor, epsilon: Tensor) -> Tensor:
    """Codes μ + σ·ε."""
    mean, variance = split_codes(encoded)
    return mean + variance.sqrt() * epsilon


def code_samples(count: int, codes: int, seed: int) -> Tensor:
    """Standard normal numbers ``(count, codes)`` that all rows share in prediction, in pairs ±ε: their mean is zero.

    Example:
        >>> code_samples(4, 3, seed=0).mean(dim=0).abs().max() < 1e-12
        tensor(True)
    """
    uniform = SobolEngine(codes, scramble=True, seed=seed).draw(-(-count // 2), dtype=torch.float64)
    # The engine's numbers are multiples of 2⁻³⁰, the first of them perhaps 0.
    normal = torch.special.ndtri(uniform.clamp(2.0**-31, 1 - 2.0**-31))
    return torch.stack([normal, -normal], dim=1).flatten(0, 1)[:count]


@dataclass(frozen=True)
class PrincipalComponents:
    """The projection of rows on their leading principal components; further dimensions of a code are zero.

    Attributes:
        mean: Of the rows, ``(d,)``.
        axes: ``(d, codes)``.

    Example:
        >>> rows = torch.tensor([[0.0, 1.0], [0.0, 3.0]])
        >>> PrincipalComponents.of(rows, 3)(rows).abs()
        tensor([[1., 0., 0.],
                [1., 0., 0.]])
    """

    mean: Tensor
    axes: Tensor

    @classmethod
    def of(cls, rows: Tensor, codes: int, seed: int = 0) -> PrincipalComponents:
        """From rows ``(n, d)``; for many columns and components by random projections, which the seed draws."""
        from sklearn.decomposition import PCA  # noqa: PLC0415  (slow to import)

        count = min(codes, *rows.shape)
        # Parts of the variance, which are not used, are NaN where all rows are equal.
        with np.errstate(invalid="ignore"):
            fit = cast(Any, PCA)(count, random_state=seed).fit(rows.double().cpu().numpy())
        axes = rows.new_zeros(rows.shape[1], codes)
        axes[:, :count] = torch.as_tensor(fit.components_).mT.to(rows)
        return cls(torch.as_tensor(fit.mean_).to(rows), axes)

    def __call__(self, rows: Tensor) -> Tensor:
        """Projections ``(n, codes)``."""
        return (rows - self.mean) @ self.axes
