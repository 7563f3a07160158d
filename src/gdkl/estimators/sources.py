"""Where a fit's rows and targets come from: arrays here, loaders in `gdkl.estimators.loaders`; both end as tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gdkl.calibration import hold_out_rows
from gdkl.estimators.kinds import Kind
from gdkl.estimators.plan import Plan
from gdkl.estimators.resuming import digest
from gdkl.estimators.row_noise import RowNoise
from gdkl.inputs.tables import PART_ROWS
from gdkl.numerics import chunk_slices
from gdkl.training import ArrayBatches, Batch, BatchSource

#: Scaled rows of up to this many bytes are kept in memory; longer tables stay where they are.
_IN_MEMORY_BYTES = 2**28


@dataclass(frozen=True)
class ArraySource:
    """Rows in an array or a memory-mapped file; they are scaled a part at a time.

    Attributes:
        kind: How rows are read and scaled.
        X: Rows ``(n, d)`` or images, checked.
        targets: Scaled targets ``(outputs, n)``, or class numbers ``(n,)``.
        outputs: Number of targets per row, or of classes.
        y: The targets as the user gave them.
        noise: What is said of the noise of rows; None for nothing.
    """

    kind: Kind
    X: NDArray[Any]
    targets: NDArray[Any]
    outputs: int
    y: NDArray[Any]
    noise: RowNoise | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.X)

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """Class numbers, if the targets are labels."""
        return self.targets if self.targets.ndim == 1 else None

    def take(self, index: NDArray[Any] | slice, plan: Plan) -> tuple[Tensor, Tensor]:
        """Scaled rows and targets at given positions, on the device."""
        rows = torch.as_tensor(self.kind.input.rows(self.X[index])).to(plan.device, plan.network_dtype)
        targets = torch.as_tensor(np.ascontiguousarray(self.targets[..., index])).to(plan.device)
        return rows, targets if self.labels is not None else targets.to(plan.algebra)

    def tensors(self, plan: Plan, index: NDArray[Any] | None = None) -> tuple[Tensor, Tensor]:
        """All rows and targets, or those at some positions."""
        count = self.rows if index is None else len(index)
        parts = [self.take(part if index is None else index[part], plan) for part in chunk_slices(count, PART_ROWS)]
        return torch.cat([rows for rows, _ in parts]), torch.cat([targets for _, targets in parts], dim=-1)

    def batches(self, plan: Plan, count: int) -> tuple[BatchSource, Batch | None]:
        """Mini-batches for training, and about ``count`` rows that are held out from them."""
        labels = None if self.labels is None else torch.as_tensor(self.labels)
        holdout = hold_out_rows(self.rows, count, plan.seed, labels)
        held, used = (index.numpy() for index in holdout)
        held_out = Batch(*self.take(held, plan)) if len(held) else None
        size, width = plan.batch_size, self.kind.input.rows(self.X[:1]).shape[1]
        if self.rows * width * plan.network_dtype.itemsize > _IN_MEMORY_BYTES and self.kind.fixed_rows:
            return ArrayBatches(
                len(used), lambda index: self.take(used[index], plan), size, plan.seed, plan.world
            ), held_out
        return self.kind.batches(*self.tensors(plan, used), plan.augmentation, size, plan.seed, plan.world), held_out

    def identity(self) -> tuple[str, str | None]:
        """A digest of every value."""
        return digest(self.X, self.targets.T, *(part for part in self.noise or () if part is not None)), None
