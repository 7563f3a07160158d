"""The noise of a regressor's predictions, from rows that its student has not learned.

In training the noise is learned with everything else: fixed where held-out rows want it, it costs accuracy (kin8nm,
power and protein: no better log-likelihood, a root mean square error larger by 2 to 10 %). Held-out rows set the noise
of predictions alone. With exact inference on 1000 rows of kin8nm (one split) the test log-likelihood is −0.03 without
calibration, with 90 % intervals that hold 58 %, and 0.99 with intervals that hold 90 % with it; the guide has 0.91.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from gdkl.calibration.holdout import rows_in_groups
from gdkl.gp import NOISE_FLOOR, ExactPosterior, KernelFunction, Marginals
from gdkl.guide import Guide
from gdkl.training import FittedModel, TrainingData

#: Part of the rows that join training late, and part of the steps before they do.
_PART, _JOIN = 0.1, 0.5

#: Pseudo-count of rows on which the student errs as its guide does: so few held-out rows are believed with care.
_PSEUDO_ROWS = 10

#: Errors far below this, of targets with unit variance, are as good as none.
_SMALL = 1e-3

#: A noise lies strictly above the floor.
_LOWEST = 1.0001 * NOISE_FLOOR


@torch.no_grad()
def most_probable_noise(q: Marginals, y: Tensor) -> Tensor:
    """The noise variance s that makes held-out targets most probable under N(μ, v + s), ``(members, outputs)``.

    Marginals are ``(members, outputs, n)``, targets ``(members or 1, outputs, n)``.

    Example:
        >>> zero = torch.zeros(1, 1, 4, dtype=torch.float64)
        >>> y = torch.tensor([[[1.0, -1.0, 1.0, -1.0]]], dtype=torch.float64)
        >>> round(float(most_probable_noise(Marginals(zero, zero + 0.25), y)), 3)
        0.75
    """
    from scipy.optimize import minimize_scalar  # noqa: PLC0415  (slow to import)

    squares = (y - q.mean).square().double()
    variance = q.variance.double().expand_as(squares)
    found: list[float] = []
    for error, own in zip(squares.flatten(0, 1), variance.flatten(0, 1), strict=True):

        def loss(log_noise: float, error: Tensor = error, own: Tensor = own) -> float:
            total = own + math.exp(log_noise)
            return float((total.log() + error / total).mean())

        # No noise beyond the mean square can be the best.
        bounds = (math.log(NOISE_FLOOR), math.log(max(2 * NOISE_FLOOR, float(error.mean()))))
        best: Any = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6})
        found.append(math.exp(float(best.x)))
    return torch.tensor(found).to(q.mean).reshape(squares.shape[:2]).clamp_min(_LOWEST)


@torch.no_grad()
def condition_with_noise(model: FittedModel, data: TrainingData, held_out: TrainingData) -> FittedModel:
    """A student trained on the other rows conditioned on all, with the noise that makes held-out rows most probable.

    They are predicted before they are conditioned on. Conditioning uses the learned noise, which the features fit.
    """
    noise = most_probable_noise(model.marginals(held_out.rows), held_out.targets)
    posterior = model.posterior
    model.posterior = ExactPosterior.condition(
        posterior.kernel, model.embed(data.rows), data.targets, posterior.noise, name="the deep kernel's matrix"
    )
    model.predictive_noise = noise
    return model


@dataclass(frozen=True, eq=False)
class DelayedHoldout:
    """Rows that join training half-way, and how far the student was off on them before.

    How far a student errs on new rows is settled half-way, as measured, though not yet how far it believes to. So few
    rows give a poor estimate on their own: 30 tell a variance to a quarter. But a row that is hard for the student is
    hard for its guide, whose leave-one-out errors are known on all rows. So the held-out rows give the ratio of the
    student's errors to the guide's, and all rows the size of the guide's. Absolute errors count, not squares: on Boston
    and Energy a few rows make most of the mean square, and intervals that follow it hold too much.

    Positions of held-out rows and of the others are ascending. ``groups`` numbers the group of equal rows that each row
    belongs to, None where all rows differ: equal rows must not be on both sides.
    """

    held_out: Tensor
    others: Tensor
    groups: Tensor | None = None

    @classmethod
    def draw(cls, data: TrainingData, seed: int) -> Self:
        """A random tenth of the rows, equal ones together; none of fewer than ten. All members hold out the same."""
        generator, count = torch.Generator().manual_seed(seed), int(_PART * data.n)
        groups = rows_in_groups(data.rows)
        if groups is None:
            order = torch.randperm(data.n, generator=generator).to(data.rows.device)
            return cls(order[:count].sort().values, order[count:].sort().values)
        sizes = torch.bincount(groups).tolist()
        late, room = torch.zeros(len(sizes), dtype=torch.bool), count
        for group in torch.randperm(len(sizes), generator=generator).tolist():
            if sizes[group] <= room:
                late[group] = True
                room -= sizes[group]
        chosen = late.to(groups.device)[groups]
        return cls(torch.nonzero(chosen).flatten(), torch.nonzero(~chosen).flatten(), groups)

    @staticmethod
    def join_step(n_iter: int) -> int:
        """The first step that trains on all rows."""
        return max(1, int(_JOIN * n_iter))

    @torch.no_grad()
    def errors(self, data: TrainingData, network: nn.Module, kernel: KernelFunction, noise: Tensor) -> Tensor:
        """Mean absolute error on the held-out rows predicted from the others, ``(members, outputs)``."""
        training = network.training
        network.eval()
        known, new = data.take(self.others), data.take(self.held_out)
        posterior = ExactPosterior.condition(
            kernel, network(known.rows), known.targets, noise, name="the deep kernel's matrix"
        )
        q = posterior.marginals(network(new.rows))
        network.train(training)
        return (new.targets - q.mean).abs().mean(dim=-1)

    @torch.no_grad()
    def noise(self, model: FittedModel, data: TrainingData, guide: Guide, errors: Tensor | None) -> Tensor:
        """The noise with which predictions are, on average, as far off as they say, ``(members, outputs)``.

        With A the guide's mean absolute leave-one-out error on all rows and r the student's error over the guide's on
        m held-out rows, the student's error on new rows is taken to be A·r^(m / (m + 10)). A normal error of that size
        has π/2 of its square as its variance; the noise is what the latent variance does not explain of it, and no less
        than the learned one unless the student is better than its guide.

        The guide is one of all fits; members are all fits once, and then all again. The student's errors are those
        recorded when the rows joined; None where training ended before.
        """
        posterior = model.posterior
        if not isinstance(posterior, ExactPosterior):
            raise TypeError("a delayed holdout is for exact inference")
        sizes = guide.left_out_errors(self.groups).abs().repeat(data.members // len(guide.targets), 1, 1)
        error = sizes.mean(dim=-1)
        ratio = torch.ones_like(error)
        # Equal rows count once.
        m = len(self.held_out) if self.groups is None else len(self.groups[self.held_out].unique())
        if m:
            if errors is None:
                errors = self.errors(data, model.embed, posterior.kernel, posterior.noise)
            ratio = (errors + _SMALL) / (sizes[..., self.held_out].mean(dim=-1) + _SMALL)
        total = math.pi / 2 * (error * ratio ** (m / (m + _PSEUDO_ROWS))).square()
        noise = (total - (posterior.left_out_variances().mean(dim=-1) - posterior.noise)).clamp_min(_LOWEST)
        return torch.where(ratio < 1, noise, torch.maximum(noise, posterior.noise))
