"""A kernel that is not finite, told of from the few entries that overflow first."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gdkl.infinite.arrays import Inputs, values_are_checked
from gdkl.numerics import NumericsWarning


def warn_of_overflow(matrix: Any, inputs: Inputs) -> None:
    """Warn of a kernel matrix that is not finite, from the few entries that overflow first."""
    if 0 in matrix.shape or not values_are_checked():
        return
    if inputs.x2 is None:
        warn_unless_finite(matrix.diagonal())
        return
    # Kernels grow with the inputs: what the largest of either set meets is not finite first.
    row, column = (int(x.detach().flatten(1).abs().amax(1).argmax()) for x in (inputs.x1, inputs.x2))
    warn_unless_finite(matrix[row], matrix[:, column])


def warn_unless_finite(*entries: Any) -> None:
    """Warn once if an entry is not finite."""
    if not values_are_checked():
        return
    tensors = [entry if isinstance(entry, Tensor) else torch.tensor(np.array(entry)) for entry in entries]
    if all(bool(torch.isfinite(entry).all()) for entry in tensors):
        return
    dtype = str(tensors[0].dtype).removeprefix("torch.")
    wider = "float64, " if dtype == "float32" else ""
    warnings.warn(
        f"the kernel overflowed in {dtype}: use {wider}smaller variances or smaller inputs.",
        NumericsWarning,
        stacklevel=4,
    )
