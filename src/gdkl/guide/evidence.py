"""Output scale and noise of a fixed Gram matrix by evidence, to convergence, through one eigendecomposition.

With K = QΛQᵀ and z = Qᵀy the evidence of y ~ N(0, s·K + σ²I) is a sum over eigenvalues. Write r = σ²/s. For a
fixed r the best scale is known, s(r) = mean(z² / (λ + r)), raised to floor/r where the noise would fall below
its floor; what is left is a search along log r alone, O(n) per evaluation.

A single row, or a constant target, is its own mean and tells nothing of either: its evidence grows without end as both
go to zero. Such targets are scaled to exactly zero, and have a scale of one and the noise that training starts from.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gdkl.gp import NOISE_START
from gdkl.numerics import eigenvectors

_LOG_2PI = math.log(2 * math.pi)

#: Rows that the fit takes at most: two numbers need no more, and its cost grows with n³.
_MOST_ROWS = 4000

#: Where log r is sought: signal-to-noise ratios that no data set leaves.
_LOG_RATIO_RANGE = (math.log(1e-12), math.log(1e8))
#: Candidates of the first grid, which finds basins, and of each finer one, which narrows a basin sixteenfold.
_COARSE, _FINE, _REFINEMENTS = 97, 33, 6
#: Basins that are followed to their bottoms: the first grid may see the deeper of two from too far.
_BASINS = 3


class NormalPrior(NamedTuple):
    """Of a logarithm."""

    mean: float
    deviation: float


#: Of the log noise of targets with unit variance where observations are nearly exact, as those of simulations are:
#: BoTorch's. The evidence of a dozen rows is often highest where all is noise; a model that believes it expects no row
#: to be better than another, and searches no further.
LITTLE_NOISE = NormalPrior(-4.0, 1.0)


class EvidenceFit(NamedTuple):
    """Best output scale and noise variance, and the log evidence per row there; each ``(members, outputs)``."""

    scale: Tensor
    noise: Tensor
    log_evidence: Tensor


@torch.no_grad()
def fit_by_evidence(gram: Tensor, targets: Tensor, noise_floor: float, *, little_noise: bool = False) -> EvidenceFit:
    """Maximise the evidence over output scale and noise, this not below its floor.

    A grid over log r finds the basins (the evidence may have two: "all signal" and "all noise"), then grids
    a few cells wide, each inside the last, close in on their bottoms. After six the brackets are narrower than
    1e-7, where the evidence itself is flat to rounding: converged, with a fixed amount of work. The deepest counts.
    Gram matrices are ``(members, n, n)``, targets ``(members, outputs, n)``. With ``little_noise`` the noise has the
    prior `LITTLE_NOISE`, weighed at the scale that is best without it.

    Example:
        >>> gram = torch.eye(4, dtype=torch.float64).expand(1, 4, 4)
        >>> fit = fit_by_evidence(gram, torch.ones(1, 1, 4, dtype=torch.float64), noise_floor=1e-4)
        >>> bool((fit.scale + fit.noise).sub(1).abs() < 1e-6)
        True
    """
    n = gram.shape[-1]
    if n > _MOST_ROWS:
        # Drawn at random but always the same ones.
        order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
        chosen = order[:_MOST_ROWS].sort().values.to(gram.device)
        gram = gram.index_select(-2, chosen).index_select(-1, chosen)
        targets = targets.index_select(-1, chosen)
    prior = LITTLE_NOISE if little_noise else None
    eigenvalues, Q = eigenvectors(gram, name="the guide's kernel matrix")
    # Rounding leaves eigenvalues a little below zero; a kernel has none.
    eigenvalues = eigenvalues.clamp_min(0).unsqueeze(-2)
    z_squared = (targets @ Q).square()

    lowest, highest = _LOG_RATIO_RANGE
    grid = torch.linspace(lowest, highest, _COARSE, dtype=gram.dtype, device=gram.device)
    grid = grid.reshape(-1, 1, 1).expand(-1, *targets.shape[:-1])
    values, _ = _profile(grid, eigenvalues, z_squared, noise_floor, prior)
    # (basins, members, outputs) from here on; where there are fewer basins, other points of the grid fill up.
    best = grid.gather(0, _bottoms(values).topk(_BASINS, dim=0, largest=False).indices)
    cell = (highest - lowest) / (_COARSE - 1)
    steps = torch.linspace(-1, 1, _FINE, dtype=gram.dtype, device=gram.device).reshape(-1, 1, 1, 1)
    for _ in range(_REFINEMENTS):
        finer = (best + cell * steps).clamp(lowest, highest)
        values, _ = _profile(finer, eigenvalues, z_squared, noise_floor, prior)
        best = finer.gather(0, values.argmin(dim=0, keepdim=True)).squeeze(0)
        cell *= 2 / (_FINE - 1)
    values, scales = _profile(best, eigenvalues, z_squared, noise_floor, prior)
    deepest = values.argmin(dim=0, keepdim=True)
    best, value, scale = (found.gather(0, deepest).squeeze(0) for found in (best, values, scales))
    noise, tells = (scale * best.exp()).clamp_min(noise_floor), informative(targets)
    prior = 0.5 * ((eigenvalues + NOISE_START).log().mean(dim=-1) + _LOG_2PI)
    return EvidenceFit(
        scale.where(tells, 1.0), noise.where(tells, max(NOISE_START, noise_floor)), -value.where(tells, prior)
    )


def informative(targets: Tensor) -> Tensor:
    """Which targets ``(..., n)`` tell something of scale and noise, ``(...)``: all but those that are zero everywhere.

    Example:
        >>> informative(torch.tensor([[0.0, 0.0], [-1.0, 1.0]]))
        tensor([False,  True])
    """
    return (targets != 0).any(dim=-1)


def _bottoms(values: Tensor) -> Tensor:
    """Values along the first dimension where neither neighbour is lower; infinity elsewhere."""
    beyond = torch.full_like(values[:1], math.inf)
    before, after = torch.cat([beyond, values[:-1]]), torch.cat([values[1:], beyond])
    return torch.where((values <= before) & (values <= after), values, math.inf)


def _profile(
    log_ratio: Tensor, eigenvalues: Tensor, z_squared: Tensor, noise_floor: float, prior: NormalPrior | None
) -> tuple[Tensor, Tensor]:
    """Negative log evidence per row at the best scale for each ratio ``(..., members, outputs)``, and that scale."""
    ratio = log_ratio.exp()
    shifted = eigenvalues + ratio.unsqueeze(-1)
    fit = (z_squared / shifted).mean(dim=-1)
    scale = torch.maximum(fit, noise_floor / ratio)
    value = 0.5 * (fit / scale + scale.log() + shifted.log().mean(dim=-1) + _LOG_2PI)
    if prior is not None:
        z = ((log_ratio + scale.log()).clamp_min(math.log(noise_floor)) - prior.mean) / prior.deviation
        value = value + z.square() / (2 * z_squared.shape[-1])
    return value, scale
