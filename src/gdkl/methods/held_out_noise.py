"""The noise of a sparse student's predictions, from rows that it has not learned from.

Exact GDKL predicts one half of the rows from the other, so the noise that it learns is that of predictions. With
inducing points the student has seen every target many times: a network that learns them by heart takes the noise down
with it, and with the noise all doubt. So some rows are kept from training, and the noise of predictions is the one that
makes them most probable. In training the noise is learned as ever: held where the kept rows want it, it costs accuracy
(kin8nm, power and protein, a tenth of the training rows for trial: no better log-likelihood, a root mean square error
larger by 2 to 10 %).
"""

from __future__ import annotations

import torch
from torch import Tensor

from gdkl.gp import NOISE_FLOOR, Marginals

#: Part of the rows that are kept for the noise, with the fewest and the most.
_PART, _FEWEST, MOST_HELD_OUT = 0.05, 200, 2000
#: Fewer training rows than this are too few to spare any.
_FEWEST_ROWS = 1000

#: Candidates of a grid over the noise's logarithm, and how often it is narrowed around the best of them.
_CANDIDATES, _ROUNDS = 17, 5


def held_out_rows(n: int) -> int:
    """How many of n rows are kept for the noise: 5 %, at least 200, at most 2000, none of fewer than 1000.

    Example:
        >>> [held_out_rows(n) for n in (500, 1000, 10_000, 600_000)]
        [0, 200, 500, 2000]
    """
    return 0 if n < _FEWEST_ROWS else min(MOST_HELD_OUT, max(_FEWEST, round(_PART * n)))


@torch.no_grad()
def most_probable_noise(q: Marginals, y: Tensor, floor: float = NOISE_FLOOR) -> Tensor:
    """The noise variance s that makes held-out targets most probable under N(μ, v + s).

    Args:
        q: Latent marginals, ``(members, outputs, n)``.
        y: Targets, ``(members or 1, outputs, n)``.
        floor: Smallest noise.

    Returns:
        ``(members, outputs)``.

    Example:
        >>> zero = torch.zeros(1, 1, 4, dtype=torch.float64)
        >>> y = torch.tensor([[[1.0, -1.0, 1.0, -1.0]]], dtype=torch.float64)
        >>> round(float(most_probable_noise(Marginals(zero, zero + 0.25), y)), 3)
        0.75
    """
    squares = (y - q.mean).square()
    # No noise beyond the mean square can be the best, and none is far below it unless the floor is.
    high = squares.mean(dim=-1).clamp_min(2 * floor).log()
    low = torch.full_like(high, floor).log()
    best = high
    steps = torch.linspace(0, 1, _CANDIDATES, dtype=high.dtype, device=high.device).reshape(-1, *[1] * high.dim())
    for _ in range(_ROUNDS):
        candidates = low + (high - low) * steps
        total = q.variance + candidates.exp().unsqueeze(-1)
        values = (total.log() + squares / total).mean(dim=-1)
        best = candidates.gather(0, values.argmin(dim=0, keepdim=True)).squeeze(0)
        cell = (high - low) / (_CANDIDATES - 1)
        low, high = torch.maximum(best - cell, low), torch.minimum(best + cell, high)
    # Strictly above the floor, which a noise cannot be at.
    return best.exp().clamp_min(1.0001 * floor)
