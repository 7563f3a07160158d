"""Which warp of the target, if any: the one under which a guide predicts each row best from all others.

The log-likelihood decides. Of counts and of targets with many equal values it rises where a warp spreads these values
out, though predictions get no sharper: a warp that makes the continuous ranked probability score worse is not taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gdkl.guide import GuideKernel, RelevanceFit, fit_relevance
from gdkl.infinite import InfiniteNetwork
from gdkl.inputs import FloatArray, TargetScaler, Warp
from gdkl.predictive import Predictive

#: Rows that decide at most, steps of the guide's fit, and how much more probable they must be, in nats.
_MOST_ROWS, _ITERATIONS, _PREFERENCE = 300, 25, 2.0
#: Fewer distinct targets than this have no shape to speak of.
_FEWEST_VALUES = 5
#: Prior deviation of the guide's log relevances.
_DEVIATION = 0.5


def select_warp(
    rows: Tensor,
    y: FloatArray,
    candidates: Sequence[Warp | None],
    kernel: GuideKernel,
    seed: int,
    noise_scale: FloatArray | None = None,
) -> Warp | None:
    """The candidate with the best leave-one-out log-likelihood in the target's own units.

    Args:
        rows: Scaled rows ``(n, d)``.
        y: One target per row, ``(n,)``, in its own units.
        candidates: The first is kept unless another is clearly better, and its CRPS no worse.
        kernel: Of the guide.
        seed: Draws the rows that decide, where there are many.
        noise_scale: What the noise variance of each row is multiplied by, ``(n,)``.
    """
    if len(candidates) == 1:
        return candidates[0]
    some = np.sort(np.random.default_rng(seed).permutation(len(y))[:_MOST_ROWS])
    rows, y = rows[torch.as_tensor(some, device=rows.device)], y[some]
    scale = torch.ones_like(rows[:, 0]) if noise_scale is None else torch.as_tensor(noise_scale[some]).to(rows)
    if len(np.unique(y)) < _FEWEST_VALUES:
        return candidates[0]
    deviation = _DEVIATION if isinstance(kernel, InfiniteNetwork) else None
    found: list[tuple[float, float]] = []
    fit: RelevanceFit | None = None
    for warp in candidates:
        scaler = TargetScaler.fit(y, [warp])
        targets = torch.as_tensor(scaler.scaled(y)).to(rows)
        fit = fit_relevance(
            kernel, rows, targets, deviation=deviation, noise_scale=scale, start=fit, iterations=_ITERATIONS
        )
        mean, variance = (value.cpu().numpy() for value in fit.left_out(rows, targets, row_noise=fit.noise * scale))
        variance = scaler.variances(variance)[None]
        p = Predictive(scaler.means(mean)[None], variance, variance, warps=[warp])
        found.append((float(p.log_prob(y).sum()), float(p.crps(y).mean())))
    usual, crps = found[0]
    scores = [value - _PREFERENCE if error <= crps else -np.inf for value, error in found[1:]]
    return candidates[1 + int(np.argmax(scores))] if max(scores) > usual else candidates[0]
