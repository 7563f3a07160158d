"""The Gaussian likelihood's one parameter: the variance of an observation around the function."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from gdkl.numerics import OptionError

#: Smallest noise variance, for targets scaled to unit variance: DKL runs into it, others do not.
NOISE_FLOOR = 1e-4

#: Where training starts: the published value.
NOISE_START = math.exp(-4.05)


class Noise(nn.Module):
    """Noise variances with a floor, ``floor + softplus(raw)``, one per entry of the batch shape.

    They start at one value for all entries or one each.

    Example:
        >>> Noise((1, 2), start=0.5)().round(decimals=4)
        tensor([[0.5000, 0.5000]], dtype=torch.float64, grad_fn=<RoundBackward1>)
    """

    def __init__(self, batch_shape: tuple[int, ...], start: float | Tensor = NOISE_START, floor: float = NOISE_FLOOR):
        super().__init__()
        variances = torch.as_tensor(start, dtype=torch.float64).expand(batch_shape)
        if floor < 0 or not bool((variances > floor).all()):
            raise OptionError(f"noise must start above its floor; got start={start!r}, floor={floor!r}.")
        self.floor = floor
        self.raw = nn.Parameter(torch.log(torch.expm1(variances - floor)))

    @torch.no_grad()
    def assign(self, variances: Tensor) -> None:
        """Take on given variances, above the floor."""
        self.raw.copy_(torch.log(torch.expm1(variances - self.floor)))

    def forward(self) -> Tensor:
        """The variances."""
        return self.floor + softplus(self.raw)
