"""Trained models: a network with a posterior over its features, or with a linear head."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from torch import Tensor, nn

from gdkl.gp import ExactPosterior, GPyTorchKernel, Marginals, ScaledKernel, SparsePosterior
from gdkl.guide import MATRIX_NAME, RelevanceFit, as_kernel_function
from gdkl.infinite import InfiniteNetwork
from gdkl.nets import ColumnScale, Members
from gdkl.numerics import OptionError, map_rows, require_memory, rows_per_chunk, tensor_bytes
from gdkl.training.data import TrainingData
from gdkl.training.dispatch import TrainingOutcome
from gdkl.training.student import select_members

#: Rows that a network with a head sees at a time in prediction.
_ROWS_AT_A_TIME = 1024

#: Farthest logarithm of a factor on the noise: a guard, of which no other value was tried.
MOST_LOG_FACTOR = 2.5


@dataclass
class FittedModel:
    """What every method returns.

    Attributes:
        embed: Turns rows ``(members, m, d)`` into features ``(members, m, p)``.
        posterior: Posterior over features: conditioned on all training rows, or through inducing points.
        history: One row per logged step.
        outcome: How training ended; None where there was no training loop.
        predictive_noise: Calibrated noise variances of predictions, ``(members, outputs)``; None for those of the
            posterior.
        most_rows: Rows that the network may see at a time, where its own memory counts; None for no limit.
    """

    embed: nn.Module
    posterior: ExactPosterior | SparsePosterior
    history: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    outcome: TrainingOutcome | None = None
    predictive_noise: Tensor | None = None
    most_rows: int | None = None

    @property
    def noise(self) -> Tensor:
        """Noise variances of predictions, ``(members, outputs)``."""
        return self.posterior.noise if self.predictive_noise is None else self.predictive_noise

    def noise_at(self, rows: Tensor) -> Tensor:
        """The same at rows ``(members or 1, m, d)``: ``(members, outputs, m)``, or 1 for m where it is constant."""
        return self.noise.unsqueeze(-1)

    @property
    def members(self) -> int:
        """Number of members."""
        return self.posterior.weights.shape[0]

    @property
    def example(self) -> Tensor:
        """A tensor on the model's device, in the precision that it takes rows in."""
        return self.posterior.features

    def select(self, members: Sequence[int]) -> FittedModel:
        """A model of some of the members."""
        chosen = list(members)
        embed = self.embed
        if isinstance(embed, Members) and embed.count > 1:
            embed = (
                Members([deepcopy(embed.select(slice(index, index + 1)).single) for index in chosen])
                .requires_grad_(False)
                .eval()
            )
        posterior = copy(self.posterior)
        for name, value in vars(posterior).items():
            if isinstance(value, Tensor):
                setattr(posterior, name, value[chosen])
        kernel = posterior.kernel
        if isinstance(kernel, ScaledKernel):
            posterior.kernel = ScaledKernel(kernel.kernel, kernel.scale[chosen])
        elif isinstance(kernel, GPyTorchKernel):
            posterior.kernel = select_members(kernel, chosen)
        noise = None if self.predictive_noise is None else self.predictive_noise[chosen]
        return replace(self, embed=embed, posterior=posterior, predictive_noise=noise)

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
            return tuple(self.latents(self.embed(part.transpose(0, 1))))

        mean, variance = map_rows(some, rows.transpose(0, 1), chunk_size, row_dim=-1)
        return Marginals(mean, variance)

    @torch.no_grad()
    def features(self, rows: Tensor) -> Tensor:
        """Features ``(members, m, p)`` of rows ``(members or 1, m, d)``."""
        rows = self._as_embedded(rows).expand(self.members, -1, -1)
        chunk = self.most_rows or _ROWS_AT_A_TIME
        return map_rows(lambda part: (self.embed(part.transpose(0, 1)),), rows.transpose(0, 1), chunk, row_dim=-2)[0]

    @torch.no_grad()
    def condition(self, rows: Tensor, targets: Tensor, row_noise: Tensor | None = None) -> FittedModel:
        """The same model given further rows ``(members or 1, m, d)`` with targets ``(members or 1, outputs, m)``.

        Network, kernel and noise stay; exact posteriors alone. ``row_noise``, ``(1, 1, m)``, is what each row has
        beside the noise.
        """
        posterior = self.posterior
        if not isinstance(posterior, ExactPosterior):
            raise OptionError("a model with inducing points cannot be conditioned on further rows: fit to all rows.")
        members, outputs, n = posterior.weights.shape
        size = n + rows.shape[-2]
        require_memory(
            2 * members * tensor_bytes(outputs, size, size, dtype=posterior.weights.dtype),
            what=f"the factors of {size} rows",
            remedy="Condition on fewer rows.",
            device=rows.device,
        )
        features = self.embed(self._as_embedded(rows).expand(members, -1, -1))
        targets = targets.to(posterior.weights).expand(members, outputs, -1)
        extended = posterior.extend(features, targets, row_noise=row_noise, name=MATRIX_NAME)
        return replace(self, posterior=extended)

    def covariance(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Latent means ``(..., members, outputs, m)`` and full covariances ``(..., members, outputs, m, m)``.

        From rows ``(..., members or 1, m, d)``, to which gradients flow; with inducing points, from one set of rows.
        """
        members, outputs, n = self.posterior.weights.shape
        *sets, _, m, d = rows.shape
        require_memory(
            math.prod(sets) * members * outputs * tensor_bytes(m, 3 * m + 2 * n, dtype=rows.dtype),
            what=f"the full covariance of {m} rows",
            remedy="Predict fewer rows at a time, or use return_std instead of return_cov.",
            device=rows.device,
        )
        rows = self._as_embedded(rows).expand(*sets, members, m, d)
        # The network sees the rows of all sets as one.
        features = self.embed(rows.movedim(-3, 0).flatten(1, -2))
        return self.joint_latents(features.unflatten(1, (*sets, m)).movedim(0, -3))

    def latents(self, features: Tensor) -> Marginals:
        """Latent marginals at what the network returns."""
        return self.posterior.marginals(features)

    def joint_latents(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Latent means and full covariances at what the network returns."""
        return self.posterior.covariance(features)

    def _as_embedded(self, rows: Tensor) -> Tensor:
        """Rows in the precision of the network, which may be another than that of the algebra over its features."""
        parameter = next((value for value in self.embed.parameters() if value.is_floating_point()), None)
        return rows if parameter is None else rows.to(parameter.dtype)


@dataclass
class FittedNetwork:
    """A trained network with a softmax head; its latent functions are the logits, without uncertainty.

    ``embed`` turns rows ``(members, m, d)`` into logits ``(members, m, outputs)``, one per class; the rest is as in
    `FittedModel`.
    """

    embed: Members
    outputs: int
    history: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    outcome: TrainingOutcome | None = None
    most_rows: int | None = None

    @property
    def noise(self) -> Tensor:
        """A network has none: zeros ``(members, classes)``."""
        return torch.zeros(self.embed.count, self.outputs, dtype=torch.float64)

    @property
    def members(self) -> int:
        """Number of members."""
        return self.embed.count

    @property
    def example(self) -> Tensor:
        """A tensor on the model's device, in the precision that it takes rows in."""
        return next(value for value in self.embed.parameters() if value.is_floating_point())

    @torch.no_grad()
    def marginals(self, rows: Tensor) -> Marginals:
        """Logits at rows ``(members or 1, m, d)`` as means ``(members, classes, m)`` of variance zero."""
        mean = self.outputs_at(rows).double()
        return Marginals(mean, torch.zeros_like(mean))

    @torch.no_grad()
    def outputs_at(self, rows: Tensor) -> Tensor:
        """What the heads return at rows ``(members or 1, m, d)``, ``(members, numbers, m)``."""
        rows = rows.expand(self.embed.count, -1, -1)

        def some(part: Tensor) -> tuple[Tensor]:
            return (self.embed(part.transpose(0, 1)).mT,)

        chunk = self.most_rows or _ROWS_AT_A_TIME
        return map_rows(some, rows.transpose(0, 1), chunk, row_dim=-1)[0]


def relevance_model(data: TrainingData, fit: RelevanceFit) -> FittedModel:
    """A Gaussian process with relevances, conditioned on the data of one fit.

    In double precision, as its hyperparameters were fitted: a small noise would be lost in single precision.
    """
    data = data.double()
    embed = nn.Identity()
    if isinstance(fit.kernel, InfiniteNetwork):
        embed = Members([ColumnScale(fit.multipliers.to(data.rows))]).eval()
    one = data.targets.new_ones(1, data.outputs)
    kernel, noise = ScaledKernel(as_kernel_function(fit.kernel), fit.scale / fit.normaliser * one), fit.noise * one
    posterior = ExactPosterior.condition(
        kernel, embed(data.rows), data.targets, noise, row_noise=data.further_noise(noise), name=MATRIX_NAME
    )
    return FittedModel(embed, posterior)


def _factor(log_factor: Tensor) -> Tensor:
    """What the noise variance is multiplied by."""
    return log_factor.clamp(-MOST_LOG_FACTOR, MOST_LOG_FACTOR).exp()


#: What the variance of an outlier is multiplied by: its error is ten times as wide.
OUTLIER_VARIANCE = 25.0


@dataclass
class Stack:
    """A mixture of models by name; the members of a model share its weight.

    Attributes:
        models: By name.
        weights: ``(models, outputs)``; of classes ``(models, 1)``.
        log_noise: Has the logarithm of a factor on the noise as its latent mean; None where the noise is constant.
        temperatures: Of classes, what each model's log probabilities are divided by, ``(models,)``.
        outliers: Share of rows ``(outputs,)`` whose variance is `OUTLIER_VARIANCE` times as large; None for none.
    """

    models: dict[str, FittedModel]
    weights: Tensor
    log_noise: FittedModel | None = None
    temperatures: Tensor | None = None
    outliers: Tensor | None = None

    def component_weights(self) -> Tensor:
        """Weights ``(K, outputs)`` of the members of all models; those of outliers come after all others."""
        shares = [
            (weight / model.members).expand(model.members, -1)
            for model, weight in zip(self.models.values(), self.weights, strict=True)
        ]
        total = torch.cat(shares).double()
        total = total / total.sum(dim=0)
        return total if self.outliers is None else torch.cat([(1 - self.outliers) * total, self.outliers * total])

    def condition(self, rows: Tensor, targets: Tensor, row_noise: Tensor | None = None) -> Stack:
        """The same mixture with each of its models given further rows, as by `FittedModel.condition`."""
        models = {name: model.condition(rows, targets, row_noise) for name, model in self.models.items()}
        return replace(self, models=models)

    def marginals(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Latent means and variances ``(K, outputs, m)`` of all members at rows ``(1, m, d)``, and their noise.

        The noise is ``(K, outputs, m)``, or ``(K, outputs, 1)`` where it is constant.
        """
        return self._joined(lambda model: model.marginals(rows), rows)

    def joint(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same with covariances ``(..., K, outputs, m, m)``, and gradients to rows ``(..., 1, m, d)``."""
        return self._joined(lambda model: model.covariance(rows), rows, joint=True)

    @property
    def is_exact(self) -> bool:
        """Whether every model is conditioned on all training rows, and not through inducing points or a head."""
        # A network with a head has no posterior.
        return all(isinstance(getattr(model, "posterior", None), ExactPosterior) for model in self.models.values())

    def left_out(self, rows: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """`marginals` of each training row given all others, of a stack that is exact.

        Args:
            rows: The training rows ``(1, n, d)``; None where the noise is constant.
        """
        return self._joined(lambda model: cast(ExactPosterior, model.posterior).left_out(), rows)

    def take(self, rows: Tensor) -> Stack:
        """The same models, if exact, conditioned on some of the training rows, by their positions ``(k,)``."""

        def some(model: FittedModel) -> FittedModel:
            return replace(model, posterior=cast(ExactPosterior, model.posterior).take(rows, name=MATRIX_NAME))

        return replace(self, models={name: some(model) for name, model in self.models.items()})

    def training_rows(self) -> Tensor | None:
        """The scaled training rows ``(n, d)``, where a model of the stack sees them as they are but for relevances."""
        for model in self.models.values():
            embed, posterior = model.embed, getattr(model, "posterior", None)
            if not isinstance(posterior, ExactPosterior):
                continue
            if isinstance(embed, nn.Identity):
                return posterior.features[0]
            if isinstance(embed, Members) and embed.count == 1 and isinstance(embed.template, ColumnScale):
                return posterior.features[0] / embed.template.factors
        return None

    def _joined(
        self, predict: Callable[[FittedModel], tuple[Tensor, Tensor]], rows: Tensor | None, *, joint: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        found = [
            (*predict(model), model.noise.unsqueeze(-1) if rows is None else model.noise_at(rows))
            for model in self.models.values()
        ]
        dims = (-3, -3 if found[0][0].ndim == found[0][1].ndim else -4, -3)
        mean, variance, noise = (torch.cat(part, dim) for part, dim in zip(zip(*found, strict=True), dims, strict=True))
        if self.log_noise is not None and rows is not None:
            log_noise = predict(self.log_noise)[0] if joint else self.log_noise.marginals(rows).mean
            noise = noise * _factor(log_noise)
        if self.outliers is None:
            return mean, variance, noise
        # What is known of the function stays: an outlier's further variance counts as noise.
        latent = variance if variance.ndim == mean.ndim else variance.diagonal(dim1=-2, dim2=-1)
        wide = OUTLIER_VARIANCE * (latent + noise) - latent
        doubled = (mean, mean), (variance, variance), (noise.expand_as(wide), wide)
        mean, variance, noise = (torch.cat(part, dim) for part, dim in zip(doubled, dims, strict=True))
        return mean, variance, noise
