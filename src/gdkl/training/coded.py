"""A trained model whose network is a stochastic encoder: predictions are a mixture over sampled codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from gdkl.gp import Marginals
from gdkl.nets import draw_codes
from gdkl.training.fitted import FittedModel


@dataclass
class CodedModel(FittedModel):
    """A posterior over codes; a component for each sample and each network, all samples of all networks once.

    All rows share the samples, so that a row's prediction does not depend on its batch.

    Attributes:
        samples: Standard normal numbers, ``(samples, codes)``.
    """

    samples: Tensor = field(kw_only=True)

    @property
    def noise(self) -> Tensor:
        """Noise variances of the components, ``(samples · members, outputs)``."""
        return super().noise.repeat(len(self.samples), 1)

    @property
    def members(self) -> int:
        """Number of components."""
        return len(self.samples) * super().members

    def select(self, members: Sequence[int]) -> CodedModel:
        """A model of the networks of some components, with all their samples."""
        networks = self.posterior.weights.shape[0]
        return cast(CodedModel, super().select(list(dict.fromkeys(index % networks for index in members))))

    def latents(self, features: Tensor) -> Marginals:
        """Latent marginals of the components at means and variances of codes."""
        found = [self.posterior.marginals(codes) for codes in self._codes(features)]
        return Marginals(*(torch.cat(values) for values in zip(*found, strict=True)))

    def joint_latents(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The same with full covariances."""
        mean, covariance = zip(*(self.posterior.covariance(codes) for codes in self._codes(features)), strict=True)
        return torch.cat(mean), torch.cat(covariance)

    def _codes(self, features: Tensor) -> list[Tensor]:
        return [draw_codes(features, epsilon.to(features)) for epsilon in self.samples]
