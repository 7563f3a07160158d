"""Stacking: models weighted by what they predict for rows that they have not learned.

Choosing the best of several models by the same rows gains nothing on real tables, averaging them does: with four priors
on relevances the mixture has a test log-likelihood 0.19 above the best single one at 100 rows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gdkl.gp import Marginals

#: Folds that are held out in turn.
FOLDS = 4

#: Concentration of the Dirichlet prior on the weights, which keeps them off zero: a pseudo-row for each model.
_CONCENTRATION = 2.0

#: Expectation-maximisation ends after so many rounds, or where no weight moves by more than the second number.
_ROUNDS, _SETTLED = 500, 1e-7


class Folds(NamedTuple):
    """Positions of each fold's held-out rows ``(folds, m)``, and of the rows that are trained on then, ascending."""

    held_out: Tensor
    used: Tensor


def draw_folds(rows: Tensor, seed: int) -> Folds:
    """Random folds of rows ``(n, d)``; unless rows repeat often, none that is trained on equals one that is held out.

    All folds have as many rows, so that their models train as one batch: a few rows may be in none.

    Example:
        >>> held_out, used = draw_folds(torch.arange(10.0)[:, None], seed=0)
        >>> held_out.shape, used.shape
        (torch.Size([4, 2]), torch.Size([4, 8]))
    """
    n = len(rows)
    same = torch.unique(rows, dim=0, return_inverse=True)[1].cpu()
    if int(torch.bincount(same).max()) > n // (2 * FOLDS):
        # Few distinct rows: without all rows equal to one of a fold there would be too few to learn from.
        same = torch.arange(n)
    generator = torch.Generator().manual_seed(seed)
    # Equal rows beside each other, in a random order.
    order = torch.argsort(torch.randperm(n, generator=generator)[same], stable=True)
    count = min(FOLDS, n // 2)
    held_out = order[: n - n % count].reshape(count, -1)
    free = [torch.nonzero(~torch.isin(same, same[part])).flatten() for part in held_out]
    least = min(len(part) for part in free)
    used = [part[torch.randperm(len(part), generator=generator)[:least].sort().values] for part in free]
    return Folds(held_out.sort(dim=-1).values.to(rows.device), torch.stack(used).to(rows.device))


def fold_by_fold(values: Tensor) -> Tensor:
    """What is said of the rows of each fold, ``(folds, outputs, rows)``, as ``(outputs, folds · rows)``."""
    return values.transpose(0, 1).flatten(1)


def share_weights(weights: Tensor, share: float | None) -> Tensor:
    """Weights ``(models, outputs)`` with a given sum of all but the last model's; None to leave them.

    Example:
        >>> share_weights(torch.tensor([[0.2], [0.2], [0.6]]), 0.8).flatten()
        tensor([0.4000, 0.4000, 0.2000])
    """
    if share is None:
        return weights
    others = weights[:-1] / weights[:-1].sum(dim=0)
    return torch.cat([share * others, torch.full_like(weights[:1], 1 - share)])


def mix_classes(log_probs: Tensor, weights: Tensor, temperatures: Tensor) -> Tensor:
    """Log probabilities ``(classes, m)`` of a mixture: those of each model are divided by its temperature before.

    From log probabilities ``(models, classes, m)`` and weights and temperatures ``(models,)``.

    Example:
        >>> log_probs = torch.tensor([[[0.5], [0.5]], [[0.9], [0.1]]]).log()
        >>> mix_classes(log_probs, torch.tensor([0.5, 0.5]), torch.ones(2)).exp().flatten()
        tensor([0.7000, 0.3000])
    """
    if bool((temperatures != 1).any()):
        log_probs = torch.log_softmax(log_probs / temperatures.to(log_probs)[:, None, None], dim=-2)
    return torch.logsumexp(log_probs + weights.to(log_probs).log()[:, None, None], dim=0)


def log_density(p: Marginals, y: Tensor) -> Tensor:
    """Elementwise log N(y; mean, variance)."""
    return -0.5 * (math.log(2 * math.pi) + p.variance.log() + (y - p.mean).square() / p.variance)


def stack_weights(log_densities: Tensor) -> Tensor:
    """Weights ``(models, outputs)`` of a mixture under which held-out targets are most probable, with a prior.

    From log densities ``(models, outputs, rows)``.

    Example:
        >>> stack_weights(torch.tensor([[[0.0, 0.0, 0.0]], [[-9.0, -9.0, -9.0]]]).double()).round(decimals=2)
        tensor([[0.8000],
                [0.2000]], dtype=torch.float64)
    """
    models, _, rows = log_densities.shape
    density = torch.softmax(log_densities, dim=0)
    weights = torch.full_like(density[..., 0], 1 / models)
    for _ in range(_ROUNDS):
        share = weights.unsqueeze(-1) * density
        share = share / share.sum(dim=0)
        before = weights
        weights = (share.sum(dim=-1) + _CONCENTRATION - 1) / (rows + models * (_CONCENTRATION - 1))
        if float((weights - before).abs().max()) < _SETTLED:
            break
    return weights
