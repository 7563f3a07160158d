"""One number that makes probabilities as sure as they should be, without a change of labels."""

from __future__ import annotations

import math
from typing import Any

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

_LARGEST_LOG_TEMPERATURE = 4.0


def best_temperature(log_probs: Tensor, labels: Tensor, *, spread: float | None = None) -> float:
    """The T at which softmax(log p / T) suits labels that p has not seen.

    Args:
        log_probs: ``(classes, m)``.
        labels: Class numbers, ``(m,)``.
        spread: Deviation of log T expected beforehand; a few rows then move T little. None for no expectation.

    Example:
        >>> log_probs = torch.tensor([[0.6, 0.6], [0.4, 0.4]]).log()
        >>> best_temperature(log_probs, torch.tensor([0, 0])) < best_temperature(log_probs, torch.tensor([0, 1]))
        True
    """
    chosen = labels.unsqueeze(0)

    def loss(log_temperature: float) -> float:
        scaled = torch.log_softmax(log_probs * math.exp(-log_temperature), dim=0)
        expected = 0.0 if spread is None else 0.5 * (log_temperature / spread) ** 2 / labels.numel()
        return expected - float(scaled.gather(0, chosen).mean())

    bounds = (-_LARGEST_LOG_TEMPERATURE, _LARGEST_LOG_TEMPERATURE)
    found: Any = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    return math.exp(float(found.x))
