"""What every classifier trains on: scaled rows, labels, and the labels as targets of latent functions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gdkl.gp import ClassLikelihood, LabelTargets, label_targets
from gdkl.methods.data import TrainingData


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
        """Labels of some rows by their numbers, both ``(members, count)``."""
        return self.labels.gather(-1, rows)

    def repeat(self, members: int) -> ClassData:
        """The same data for several members, without copying it."""

        def stretch(value: Tensor) -> Tensor:
            return value.expand(members, *value.shape[1:])

        return ClassData(
            stretch(self.rows),
            stretch(self.targets),
            stretch(self.label_noise),
            stretch(self.labels),
            self.likelihood,
        )
