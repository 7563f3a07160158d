"""Temperature scaling: one number that makes class probabilities as confident as they should be."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

_LARGEST_LOG_TEMPERATURE = 4.0

#: Prior deviation of log T. A dozen held-out rows that are all labelled rightly would otherwise make every prediction
#: certain, and the first wrong one endlessly so.
PRIOR_DEVIATION = 0.5


def best_temperature(log_probs: Tensor, labels: Tensor, *, deviation: float | None = None) -> float:
    """The T at which softmax(log p / T) is most probable for labels ``(m,)`` that p ``(classes, m)`` has not learned.

    ``deviation`` is a prior one of log T, so that a few rows move T little; None for no prior.

    Example:
        >>> log_probs = torch.tensor([[0.6, 0.6], [0.4, 0.4]]).log()
        >>> best_temperature(log_probs, torch.tensor([0, 0])) < best_temperature(log_probs, torch.tensor([0, 1]))
        True
    """
    from scipy.optimize import minimize_scalar  # noqa: PLC0415  (slow to import)

    chosen = labels.to(log_probs.device).unsqueeze(0)

    def loss(log_temperature: float) -> float:
        scaled = torch.log_softmax(log_probs * math.exp(-log_temperature), dim=0)
        prior = 0.0 if deviation is None else 0.5 * (log_temperature / deviation) ** 2 / labels.numel()
        return prior - float(scaled.gather(0, chosen).mean())

    bounds = (-_LARGEST_LOG_TEMPERATURE, _LARGEST_LOG_TEMPERATURE)
    found: Any = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    return math.exp(float(found.x))
