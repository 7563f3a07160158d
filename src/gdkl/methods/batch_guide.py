"""The guide of mini-batches: relevances, scale and noise of a subset, and its marginals at points without labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gdkl.gp import Marginals
from gdkl.guide import MOST_ROWS, Guide, GuideKernel, ScaledColumns, as_kernel_function, fit_guide, fit_relevance
from gdkl.guide import subset_size as usual_size
from gdkl.infinite import InfiniteNetwork
from gdkl.methods.nngp import RELEVANCE_DEVIATION
from gdkl.nets import ColumnScale, surround
from gdkl.training import BatchSource, StudentOptions, step_generator

#: Points without labels that a step sees, and how many they are drawn from.
_POINTS, _POINTS_DRAWN = 64, 4096


@dataclass(frozen=True)
class Surroundings:
    """Points between and around the rows, and the guide's marginals there.

    Attributes:
        rows: ``(m, d)``.
        marginals: Given a subset of the rows, ``(1, outputs, m)``.
        mu: Weight of the KL term at these points.
    """

    rows: Tensor
    marginals: Marginals
    mu: float

    def draw(self, step: int, options: StudentOptions) -> tuple[Tensor, ...]:
        """Points of one step with the guide's means and variances."""
        generator = step_generator(options.seed, step, rank=options.world.rank)
        index = torch.randint(len(self.rows), (_POINTS,), generator=generator).to(self.rows.device)
        return self.rows[index], *(value[..., index] for value in self.marginals)


def fit_batch_guide(
    source: BatchSource, kernel: GuideKernel, options: StudentOptions, *, mu: float, groups: Tensor | None
) -> tuple[Guide, Surroundings | None, StudentOptions]:
    """Fit a guide on a subset of the rows, and where it is an infinite network a relevance per column.

    Args:
        source: Where rows come from.
        kernel: Of the guide.
        options: How the student is built; those returned multiply its columns by the relevances, too.
        mu: Weight of the KL term at points without labels; 0 for none.
        groups: For each column the number of its group, which shares a relevance.
    """
    function = as_kernel_function(kernel)
    subset = source.sample(max(usual_size(source.rows), min(source.rows, MOST_ROWS)), options.seed)
    rows, targets = subset.rows.to(subset.targets), subset.targets
    if isinstance(kernel, InfiniteNetwork):
        some, y = rows[:MOST_ROWS].double(), targets[:, :MOST_ROWS].double()
        factors = fit_relevance(kernel, some, y, deviation=RELEVANCE_DEVIATION, groups=groups).multipliers
        function = ScaledColumns(function, factors)
        # Of a nearly linear function all relevances are tiny, and so would be a network's features: the largest is at
        # least one for the student.
        network, scaled = options.feature_net, (factors / factors.amax().clamp_max(1)).to(subset.rows)
        options = replace(options, feature_net=lambda d: nn.Sequential(ColumnScale(scaled.cpu()), network(d)))
    guide = fit_guide(function, rows[None], targets[None], noise_floor=options.noise_floor)
    if not mu:
        return guide.for_batches(), None, options
    points = surround(subset.rows[None], _POINTS_DRAWN, options.seed)
    marginals = guide.predictor(rows[None]).marginals(points.to(targets))
    return guide.for_batches(), Surroundings(points[0], marginals, mu), options
