"""A trained network that says a mean and a variance for each target."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn.functional import softplus

from gdkl.gp import NOISE_FLOOR, Marginals
from gdkl.nets import Members
from gdkl.training.fitted import FittedNetwork


@dataclass
class GaussianNetwork(FittedNetwork):
    """A network without uncertainty of its function; the noise of an observation depends on the row.

    Attributes:
        mean_noise: Mean noise variance over the training rows, ``(members, outputs)``.
        floor: Smallest noise variance.
    """

    mean_noise: Tensor = field(kw_only=True)
    floor: float = field(default=NOISE_FLOOR, kw_only=True)

    @property
    def noise(self) -> Tensor:
        """Mean noise variance over the training rows."""
        return self.mean_noise

    def noise_at(self, rows: Tensor) -> Tensor:
        """Noise variances at rows ``(members or 1, m, d)``, ``(members, outputs, m)``."""
        return split_gaussian(self.outputs_at(rows), self.floor).variance.double()

    def marginals(self, rows: Tensor) -> Marginals:
        """The function at rows as means of variance zero, ``(members, outputs, m)``."""
        mean = split_gaussian(self.outputs_at(rows), self.floor).mean.double()
        return Marginals(mean, torch.zeros_like(mean))

    def covariance(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The same with covariances of zero, ``(members, outputs, m, m)``."""
        mean = self.marginals(rows).mean
        return mean, torch.zeros_like(mean).diag_embed()

    def select(self, members: Sequence[int]) -> GaussianNetwork:
        """A model of some of the members."""
        chosen = list(members)
        embed = self.embed
        if embed.count > 1:
            alone = (deepcopy(embed.select(slice(index, index + 1)).single) for index in chosen)
            embed = Members(list(alone)).requires_grad_(False).eval()
        return replace(self, embed=embed, mean_noise=self.mean_noise[chosen])


def split_gaussian(outputs: Tensor, floor: float) -> Marginals:
    """Means and variances ``(..., outputs, n)`` of what a head ``(..., 2 · outputs, n)`` returns.

    Example:
        >>> split_gaussian(torch.zeros(2, 1), floor=0.0).variance.round(decimals=4)
        tensor([[0.6931]])
    """
    mean, raw = outputs.chunk(2, dim=-2)
    return Marginals(mean, floor + softplus(raw))
