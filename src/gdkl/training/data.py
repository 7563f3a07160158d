"""What every method trains on: scaled rows and targets, for one fit or several of one shape at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

from gdkl.gp import ClassLikelihood, LabelTargets, label_targets, per_row, take_rows, take_targets
from gdkl.numerics import DataError


@dataclass(frozen=True)
class TrainingData:
    """Scaled training data.

    Members are independent fits of one shape trained as one batch: folds, seeds, or an ensemble.

    Attributes:
        rows: Inputs, ``(members, n, d)``.
        targets: Targets, ``(members, outputs, n)``; exactly zero where a single row or a constant tells nothing.
        noise_scale: What the noise variance of each row is multiplied by, ``(members, 1, n)``; None for one.
        noise_added: What each row has beside it, of the same shape; None for nothing.
    """

    rows: Tensor
    targets: Tensor
    noise_scale: Tensor | None = field(default=None, kw_only=True)
    noise_added: Tensor | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        members, n = self.rows.shape[:2]
        if self.targets.dim() != 3 or (self.targets.shape[0], self.targets.shape[2]) != (members, n):
            raise DataError(
                f"rows {tuple(self.rows.shape)} and targets {tuple(self.targets.shape)} do not fit: "
                "expected (members, n, d) and (members, outputs, n)."
            )

    @property
    def members(self) -> int:
        """Number of fits in the batch."""
        return self.rows.shape[0]

    @property
    def n(self) -> int:
        """Number of training rows of each fit."""
        return self.rows.shape[1]

    @property
    def outputs(self) -> int:
        """Number of targets per row."""
        return self.targets.shape[1]

    def row_noise(self, noise: Tensor) -> Tensor:
        """Noise variances ``(members, outputs)`` row by row, as the targets; as they are if all rows are alike.

        Of variances that are row by row already, what the rows have in fact.
        """
        if self.noise_scale is not None:
            noise = per_row(noise, self.targets) * self.noise_scale
        return noise if self.noise_added is None else per_row(noise, self.targets) + self.noise_added

    def further_noise(self, noise: Tensor) -> Tensor | None:
        """The same less the noise itself, which may be negative; None if all rows are alike."""
        by_row = self.row_noise(noise)
        return None if by_row is noise else by_row - noise.unsqueeze(-1)

    def noise_parts(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The noise of each row and what is added to it, both of the shape of the targets."""
        added = torch.zeros_like(self.targets) if self.noise_added is None else self.noise_added.expand_as(self.targets)
        return per_row(self.row_noise(noise), self.targets).expand_as(self.targets) - added, added

    def arguments(self, index: int) -> dict[str, Any]:
        """What `gdkl.guide.fit_relevance` takes of data, of one fit."""
        found = {name: None if value is None else value[index] for name, value in self.all_arguments().items()}
        return found | {
            name: value[0] for name, value in found.items() if name.startswith("noise") and value is not None
        }

    def all_arguments(self) -> dict[str, Any]:
        """What `gdkl.guide.fit_guide` takes of data."""
        names = ("rows", "targets", "noise_scale", "noise_added")
        return {name: getattr(self, name) for name in names}

    def scale_noise(self, factor: Tensor) -> Self:
        """The same with the noise of each row multiplied, ``(members, 1, n)``."""
        return replace(self, noise_scale=factor if self.noise_scale is None else factor * self.noise_scale)

    def double(self) -> Self:
        """The same in double precision."""
        return self._map(lambda value, _: value.double())

    def member(self, index: int) -> Self:
        """One fit of the batch, as a batch of one."""
        return self.select(slice(index, index + 1))

    def select(self, part: slice) -> Self:
        """Some fits of the batch."""
        return self._map(lambda value, _: value[part])

    def repeat(self, members: int) -> Self:
        """The same data for several members per fit: all fits once, then all again; a single fit is not copied."""
        if self.members == 1:
            return self._map(lambda value, _: value.expand(members, *value.shape[1:]))
        return self._map(lambda value, _: value.repeat(members, *(1 for _ in value.shape[1:])))

    def take(self, index: Tensor) -> Self:
        """Some of the rows of every fit, by their positions."""
        return self._map(lambda value, dim: value.index_select(dim, index.to(value.device)))

    def take_each(self, index: Tensor) -> Self:
        """Some of the rows of each fit, by positions ``(members, k)``."""
        return self._map(lambda value, dim: take_rows(value, index) if dim == 1 else take_targets(value, index))

    def _map(self, function: Callable[[Tensor, int], Tensor]) -> Self:
        """Every tensor replaced by a function of it and of the dimension that counts its rows."""
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {name: value for name, value in held.items() if isinstance(value, Tensor)}
        return replace(self, **{name: function(value, 1 if name == "rows" else -1) for name, value in tensors.items()})


@dataclass(frozen=True)
class ClassData(TrainingData):
    """Scaled training data with labels; images are flat rows here.

    Attributes:
        rows: Inputs in the network's precision, ``(members, n, d)``.
        targets: Targets of the latent functions in the algebra's precision, ``(members, classes, n)``.
        label_noise: The variance that each target carries, same shape.
        labels: Class numbers, ``(members, n)``.
        likelihood: How labels became targets.
    """

    label_noise: Tensor
    labels: Tensor
    likelihood: ClassLikelihood

    @classmethod
    def make(
        cls, rows: Tensor, labels: Tensor, n_classes: int, likelihood: ClassLikelihood, dtype: torch.dtype
    ) -> ClassData:
        """From rows ``(members, n, d)`` and class numbers ``(members, n)``."""
        values, noise = label_targets(labels, n_classes, likelihood, dtype)
        return cls(rows, values, noise, labels, likelihood)

    @property
    def label_targets(self) -> LabelTargets:
        """Targets with the variances they carry."""
        return LabelTargets(self.targets, self.label_noise)

    def labels_of(self, rows: Tensor) -> Tensor:
        """Labels of some rows by their positions, both ``(members, count)``."""
        return self.labels.gather(-1, rows)
