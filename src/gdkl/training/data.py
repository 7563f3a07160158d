"""What every method trains on: scaled rows and targets, for one fit or several of one shape at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor

from gdkl.gp import ClassLikelihood, LabelTargets, label_targets, take_rows, take_targets
from gdkl.numerics import DataError


@dataclass(frozen=True)
class TrainingData:
    """Scaled training data.

    Members are independent fits of one shape trained as one batch: folds, seeds, or an ensemble.

    Attributes:
        rows: Inputs, ``(members, n, d)``.
        targets: Targets, ``(members, outputs, n)``.
    """

    rows: Tensor
    targets: Tensor

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
