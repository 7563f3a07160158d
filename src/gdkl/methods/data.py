"""What every method trains on: scaled rows and targets, for one fit or several of one shape at once."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

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
        """Number of targets a row."""
        return self.targets.shape[1]

    def member(self, index: int) -> TrainingData:
        """One fit of the batch, as a batch of one."""
        return TrainingData(self.rows[index : index + 1], self.targets[index : index + 1])

    def repeat(self, members: int) -> TrainingData:
        """The same data for several members a fit: all fits once, and then all again; that of one fit is not copied."""
        if self.members == 1:
            return TrainingData(self.rows.expand(members, -1, -1), self.targets.expand(members, -1, -1))
        return TrainingData(self.rows.repeat(members, 1, 1), self.targets.repeat(members, 1, 1))

    def take(self, index: Tensor) -> TrainingData:
        """Some of the rows of every fit, by their positions."""
        return TrainingData(self.rows[:, index], self.targets[..., index])
