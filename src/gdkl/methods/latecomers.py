"""Rows that join training half-way: what they say of a student that has not seen them, and the noise that follows.

A student learns the rows that it is trained on by heart, and takes its noise down with them: nothing that it says of
them tells how wrong it is on new ones. To keep rows from it for good is dear where there are few (a tenth of Energy's
691: errors larger by a third on one of two splits). So a tenth is kept for the first half of training alone. How much a
student errs on new rows is settled by then, as measured, though not yet how much it thinks it does.

So few rows are poor witnesses on their own: 30 tell a variance to a quarter. But a row that is hard for the student is
hard for its guide, and the guide's errors are known on all rows, each predicted from the others: it has learned two
numbers from them, and nothing by heart. So the latecomers are asked how the student's errors compare with the guide's
on the same rows, and all rows how large the guide's are.

Errors count by their size, not by its square: on tables like Boston and Energy a few rows make most of the mean square,
and intervals that follow it hold more than they should.
"""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Tensor, nn

from gdkl.gp import NOISE_FLOOR, ExactPosterior, KernelFunction
from gdkl.guide import Guide
from gdkl.methods.data import TrainingData
from gdkl.methods.fitted import FittedModel

#: Part of the rows that come late, and part of the steps before they do.
_PART, _JOIN = 0.1, 0.5

#: The latecomers are believed as if so many more had said that the student errs as its guide does.
_DOUBT_ROWS = 10

#: Errors far below this, of targets with unit variance, are as good as none.
_SMALL = 1e-3


class Latecomers:
    """Some rows of the training data, and how far a student was off on them before it had seen them.

    Args:
        index: Their positions, ascending.
        others: All other positions, ascending.
        groups: Number of the group of each row; None where every row is its own. A row that has come early vouches for
            nothing that is said of its equal.
    """

    def __init__(self, index: Tensor, others: Tensor, groups: Tensor | None = None):
        self.index = index
        self.others = others
        self.groups = groups
        self._errors: Tensor | None = None

    @classmethod
    def draw(cls, data: TrainingData, seed: int) -> Self:
        """A random tenth of the rows, equal ones together; none of fewer than ten.

        Several fits have them in the same places, and rows count as equal there that are so in every fit.
        """
        generator, count = torch.Generator().manual_seed(seed), int(_PART * data.n)
        groups = torch.unique(data.rows.transpose(0, 1).flatten(1), dim=0, return_inverse=True)[1]
        sizes = torch.bincount(groups)
        if len(sizes) == data.n:
            order = torch.randperm(data.n, generator=generator).to(data.rows.device)
            return cls(order[:count].sort().values, order[count:].sort().values)
        late = torch.zeros(len(sizes), dtype=torch.bool)
        room = count
        for group in torch.randperm(len(sizes), generator=generator).tolist():
            if int(sizes[group]) <= room:
                late[group] = True
                room -= int(sizes[group])
        chosen = late.to(groups.device)[groups]
        return cls(torch.nonzero(chosen).flatten(), torch.nonzero(~chosen).flatten(), groups)

    @staticmethod
    def join(n_iter: int) -> int:
        """The first step that has them."""
        return max(1, int(_JOIN * n_iter))

    @torch.no_grad()
    def meet(self, data: TrainingData, network: nn.Module, kernel: KernelFunction, noise: Tensor) -> None:
        """Predict them from the others, and remember the mean absolute error ``(members, outputs)``; once."""
        if self._errors is not None or not len(self.index):
            return
        training = network.training
        network.eval()
        known, new = data.take(self.others), data.take(self.index)
        posterior = ExactPosterior.condition(
            kernel, network(known.rows), known.targets, noise, name="the deep kernel's matrix"
        )
        q = posterior.marginals(network(new.rows))
        network.train(training)
        self._errors = (new.targets - q.mean).abs().mean(dim=-1)

    @torch.no_grad()
    def noise(self, model: FittedModel, data: TrainingData, guide: Guide) -> Tensor:
        """The noise with which predictions are, on average, as far off as they say.

        With A the guide's mean absolute error on all rows and r the student's on m latecomers over the guide's there,
        the student's on new rows is taken to be A·r^(m / (m + 10)). A normal error of that size has π/2 of its square
        as its variance; what the latent variance is not of that is noise. It is no less than the learned one unless the
        student is better than its guide.

        Args:
            model: Trained on the data.
            data: For each member.
            guide: Of all fits; members are all fits once, and then all again.

        Returns:
            ``(members, outputs)``.
        """
        posterior = model.posterior
        if not isinstance(posterior, ExactPosterior):
            raise TypeError("latecomers are for exact inference")
        # Training that was ended before they could join has not seen them.
        self.meet(data, model.embed, posterior.kernel, posterior.noise)
        sizes = guide.left_out_errors(self.groups).abs().repeat(data.members // len(guide.targets), 1, 1)
        # Equal rows are one witness.
        m = len(self.index) if self.groups is None else len(self.groups[self.index].unique())
        error = sizes.mean(dim=-1)
        ratio = torch.ones_like(error)
        if self._errors is not None:
            ratio = (self._errors + _SMALL) / (sizes[..., self.index].mean(dim=-1) + _SMALL)
        total = math.pi / 2 * (error * ratio ** (m / (m + _DOUBT_ROWS))).square()
        noise = total - (posterior.left_out_variances().mean(dim=-1) - posterior.noise)
        # Strictly above the floor, which a noise cannot be at.
        noise = noise.clamp_min(1.0001 * NOISE_FLOOR)
        return torch.where(ratio < 1, noise, torch.maximum(noise, posterior.noise))
