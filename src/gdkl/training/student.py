"""The student: a feature network, a base kernel over its features, and a noise; inducing points for many rows."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple, TypeVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from gdkl.gp import (
    GPyTorchKernel,
    InducingPoints,
    Marginals,
    Noise,
    SparsePosterior,
    Split,
    take_noise,
    take_rows,
    take_targets,
)
from gdkl.nets import Members
from gdkl.training.data import TrainingData

#: What a student's kernel matrix is called in numerical errors.
MATRIX_NAME = "the deep kernel's matrix"


class HeldOut(NamedTuple):
    """Latent marginals q(f | x, D1) of held-out rows, their targets (of that shape) and the student's noise."""

    q: Marginals
    y: Tensor
    noise: Tensor


class DeepKernel(nn.Module):
    """Network, kernel over its features and noise, for exact inference; the last two per member and output."""

    def __init__(self, network: Members, kernel: GPyTorchKernel, noise: Noise):
        super().__init__()
        self.network = network
        self.kernel = kernel
        self.noise = noise

    def split_marginals(self, data: TrainingData, split: Split) -> HeldOut:
        """Marginals of the held-out rows given the observed ones, with their targets and the noise.

        The network sees all rows once; only K₁₁, K₂₁ and a diagonal are formed.
        """
        noise = self.noise()
        q = self.marginals(data.rows, data.targets, split, noise)
        return HeldOut(q, take_targets(data.targets, split.held_out), noise)

    def marginals(self, rows: Tensor, targets: Tensor, split: Split, noise: Tensor) -> Marginals:
        """The same marginals where some of the held-out rows may have no targets.

        Args:
            rows: All rows, those with targets first, ``(members, n + more, d)``.
            targets: ``(members, outputs, n)``.
            split: Indices into the rows; those observed have targets.
            noise: The student's noise variance, ``(members, outputs)``, or row by row as the targets.
        """
        observed, noise = take_targets(targets, split.observed), take_noise(noise, split.observed)
        return self.kernel.split_posterior(self._features(rows, split), observed, noise, name=MATRIX_NAME)

    def symmetric_marginals(self, rows: Tensor, targets: Tensor, split: Split, noise: Tensor) -> Marginals:
        """`marginals` of the held-out rows given the observed ones, then of the observed given the held-out ones.

        The network, which is most of a step on images, sees the rows once for both.
        """
        features = self._features(rows, split)
        ways = [features, features.roll(-split.observed.shape[-1], dims=-2)]
        given = [take_targets(targets, part) for part in split]
        found = self.kernel.split_posteriors(ways, given, noise, name=MATRIX_NAME)
        return Marginals(*(torch.cat(values, dim=-1) for values in zip(*found, strict=True)))

    def _features(self, rows: Tensor, split: Split) -> Tensor:
        # Sorting the rows, not the features, leaves nothing to differentiate.
        return self.network(take_rows(rows, torch.cat(split, dim=-1))).unsqueeze(-3)

    def gram(self, rows: Tensor) -> Tensor:
        """Kernel matrix of all rows ``(members, n, d)``, shape ``(members, outputs, n, n)``."""
        return self.kernel.leading(self.network(rows).unsqueeze(-3), rows.shape[-2])

    def select(self, part: slice) -> DeepKernel:
        """Some of several members; their parameters are views of those of all."""
        parts = self.network.select(part), select_members(self.kernel, part), select_members(self.noise, part)
        return DeepKernel(*parts)


ModuleT = TypeVar("ModuleT", bound=nn.Module)


def select_members(module: ModuleT, index: slice | Sequence[int]) -> ModuleT:
    """A copy of a kernel or noise with the parameters of some members; with a slice they are views."""
    copied = deepcopy(module)
    for mine, theirs in zip(module.modules(), copied.modules(), strict=True):
        for name, parameter in mine.named_parameters(recurse=False):
            setattr(theirs, name, nn.Parameter(parameter.detach()[index], parameter.requires_grad))
        if isinstance(theirs, Kernel) and len(theirs.batch_shape) > 0:
            members, *outputs = theirs.batch_shape
            count = len(range(members)[index]) if isinstance(index, slice) else len(index)
            theirs.batch_shape = torch.Size([count, *outputs])
    return copied


class SparseDeepKernel(nn.Module):
    """Network, kernel, noise and inducing points of all members; a softmax likelihood does not use the noise."""

    def __init__(self, network: Members, kernel: GPyTorchKernel, noise: Noise, points: InducingPoints):
        super().__init__()
        self.network = network
        self.kernel = kernel
        self.noise = noise
        self.points = points

    def marginals(self, rows: Tensor) -> Marginals:
        """Latent marginals q(f) of a batch of rows ``(b, d)``, shape ``(members, outputs, b)``."""
        features = self.network(rows.expand(self.network.count, *rows.shape))
        return self.posterior().marginals(features)

    def posterior(self) -> SparsePosterior:
        """The posterior of the current parameters."""
        return self.points.posterior(self.kernel, self.noise())
