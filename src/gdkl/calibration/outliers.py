"""Outliers: the share of rows whose error is far wider than the model says.

Mixtures of Gaussians have thin tails: of 400 test rows of nettfa one lay 116 deviations out, and cost 17 nats per row
of the mean. Where held-out rows show outliers, each row is one with a small probability, and its variance multiplied.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gdkl.training import OUTLIER_VARIANCE

#: Rows that the prior adds, of which all are outliers.
_PRIOR_ROWS = 0.1
#: By how many nats outliers must make held-out targets more probable: they widen the deviation of every prediction.
_PREFERENCE = 10.0
#: Expectation-maximisation ends after so many rounds.
_ROUNDS = 100


def widened(variance: Tensor) -> Tensor:
    """The variance of an outlier."""
    return OUTLIER_VARIANCE * variance


def outlier_share(log_density: Tensor, log_density_wide: Tensor) -> Tensor | None:
    """The most probable share of outliers ``(outputs,)``; None where held-out targets show hardly any.

    Args:
        log_density: Of held-out targets under the model, ``(outputs, rows)``.
        log_density_wide: Under the model with `widened` variances.

    Example:
        >>> errors = torch.tensor([[0.0] * 98 + [30.0, -30.0]])
        >>> outlier_share(-0.5 * errors**2, -0.5 * (errors**2 / 100) - 2.3)
        tensor([0.0233])
    """
    rows = log_density.shape[-1]
    odds = (log_density_wide - log_density).clamp(max=80).exp()
    share = odds.new_full((len(odds), 1), 0.01)
    for _ in range(_ROUNDS):
        wide = share * odds
        share = ((wide / (1 - share + wide)).sum(dim=-1, keepdim=True) + _PRIOR_ROWS) / (rows + _PRIOR_ROWS)
    gain = torch.log1p(share * (odds - 1)).sum()
    return share.squeeze(-1) if float(gain) > _PREFERENCE else None
