"""A trained model: how rows become features, and the posterior over them."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gdkl.gp import ExactPosterior, LeftOut, Marginals, SparsePosterior
from gdkl.numerics import map_rows, require_memory, rows_per_chunk, tensor_bytes
from gdkl.training import Batch, TrainingOutcome


@dataclass
class FittedModel:
    """What every method returns.

    Attributes:
        embed: Turns rows ``(members, m, d)`` into features ``(members, m, p)``.
        posterior: Posterior over features: conditioned on all training rows, or seen through inducing points.
        history: One row a logged step.
        outcome: How training ended; None where there was no training loop.
        left_out: Beliefs about each training row given the labels of all others, where a calibration asks for them.
        held_out: Labelled rows that were kept from training, where a calibration asks for them.
        most_rows: Rows that the network may see at a time, where its own memory counts; None for no limit.
        guide: The guide as a model of its own, where it has a share of the predicted probabilities. `marginals` and
            `covariance` are without it.
        guide_share: That share.
    """

    embed: nn.Module
    posterior: ExactPosterior | SparsePosterior
    history: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    outcome: TrainingOutcome | None = None
    left_out: LeftOut | None = None
    held_out: Batch | None = None
    most_rows: int | None = None
    guide: FittedModel | None = None
    guide_share: float = 0.0

    @property
    def noise(self) -> Tensor:
        """Noise variances, ``(members, outputs)``."""
        return self.posterior.noise

    @torch.no_grad()
    def marginals(self, rows: Tensor) -> Marginals:
        """Latent marginals at rows ``(members or 1, m, d)``: means and variances ``(members, outputs, m)``.

        Computed in chunks; K(new, new) is never formed.
        """
        posterior = self.posterior
        members, outputs, n = posterior.weights.shape
        rows = self._as_embedded(rows).expand(members, -1, -1)
        # K(new, train) and its whitened copy, with as much again for temporaries.
        chunk_size = rows_per_chunk(members * outputs * tensor_bytes(4, n, dtype=posterior.weights.dtype))
        if self.most_rows is not None:
            chunk_size = min(chunk_size, self.most_rows)

        def some(part: Tensor) -> tuple[Tensor, ...]:
            return tuple(posterior.marginals(self.embed(part.transpose(0, 1))))

        mean, variance = map_rows(some, rows.transpose(0, 1), chunk_size, row_dim=-1)
        return Marginals(mean, variance)

    @torch.no_grad()
    def covariance(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Latent means ``(members, outputs, m)`` and full covariances ``(members, outputs, m, m)``."""
        members, outputs, n = self.posterior.weights.shape
        m = rows.shape[-2]
        require_memory(
            members * outputs * tensor_bytes(m, 3 * m + 2 * n, dtype=rows.dtype),
            what=f"the full covariance of {m} rows",
            remedy="Ask for fewer rows at a time, or for return_std instead of return_cov.",
            device=rows.device,
        )
        return self.posterior.covariance(self.embed(self._as_embedded(rows).expand(members, -1, -1)))

    def _as_embedded(self, rows: Tensor) -> Tensor:
        """Rows in the precision of the network, which may be another than that of the algebra over its features."""
        parameter = next((value for value in self.embed.parameters() if value.is_floating_point()), None)
        return rows if parameter is None else rows.to(parameter.dtype)
