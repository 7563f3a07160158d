"""Number of gradient steps and the learning rate of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from gdkl.numerics import OptionError


class Decay(StrEnum):
    """How the learning rate falls."""

    STEPS = "steps"
    """By a factor at each milestone, as published."""
    COSINE = "cosine"
    """Along half a cosine to zero: as good in fewer steps."""


@dataclass(frozen=True)
class Schedule:
    """Number of steps and learning rates.

    Attributes:
        n_iter: Number of gradient steps.
        learning_rate: Its highest value.
        milestones: Fractions of the steps after which the rate falls, for `Decay.STEPS`.
        factor: By what it is multiplied there.
        decay: How it falls.
        warm_up: Fraction of the steps on which the rate climbs to its highest value.
        beta2: Adam's β₂, the decay of its average of squared gradients.
    """

    n_iter: int
    learning_rate: float = 1e-2
    milestones: tuple[float, ...] = (0.6, 0.8)
    factor: float = 0.1
    decay: Decay = Decay.STEPS
    warm_up: float = 0.0
    beta2: float = 0.999

    def __post_init__(self) -> None:
        if self.n_iter < 1:
            raise OptionError(f"n_iter={self.n_iter!r} must be at least 1.")
        if not self.learning_rate > 0:
            raise OptionError(f"learning_rate={self.learning_rate!r} must be positive.")
        if not 0 < self.beta2 < 1:
            raise OptionError(f"beta2={self.beta2!r} must lie between 0 and 1.")
        if not 0 <= self.warm_up < 1:
            raise OptionError(f"warm_up={self.warm_up!r} must be a part of the way, from 0 to below 1.")

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0.

        Example:
            >>> [round(Schedule(10).rate(step), 6) for step in (5, 6, 8)]
            [0.01, 0.001, 0.0001]
            >>> fast = Schedule(10, decay=Decay.COSINE, warm_up=0.2)
            >>> [round(fast.rate(step), 6) for step in (0, 1, 2, 6, 9)]
            [0.005, 0.01, 0.01, 0.005, 0.000381]
        """
        climb = round(self.warm_up * self.n_iter)
        if step < climb:
            return self.learning_rate * (step + 1) / climb
        if self.decay is Decay.COSINE:
            way = (step - climb) / (self.n_iter - climb)
            return self.learning_rate * 0.5 * (1 + math.cos(math.pi * way))
        passed = sum(step >= int(part * self.n_iter) for part in self.milestones)
        return self.learning_rate * self.factor**passed
