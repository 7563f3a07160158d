"""The guide's Gram matrices: normalised ones of all rows, and stored ones of which a mini-batch needs a part."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gdkl.gp import KernelFunction
from gdkl.numerics import DataError, OptionError, require_memory, tensor_bytes


class PrecomputedGram:
    """Covariances of a mini-batch picked from the Gram matrix ``(n, n)`` of all training rows.

    It is a tensor, an array, or a memory-mapped one, of which only what a batch needs is read.

    Example:
        >>> source = PrecomputedGram(np.arange(9.0).reshape(3, 3))
        >>> source.gram(torch.zeros(2, 1, dtype=torch.float64), torch.tensor([2, 0]))
        tensor([[8., 6.],
                [2., 0.]], dtype=torch.float64)
    """

    def __init__(self, matrix: Tensor | np.ndarray[Any, Any]):
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise DataError(f"a precomputed Gram matrix must be square; got shape {tuple(matrix.shape)}.")
        self.matrix = matrix

    def gram(self, rows: Tensor, index: Tensor | None) -> Tensor:
        """Covariances ``(b, b)`` of rows ``(b, d)`` at positions ``index`` of the training set."""
        if index is None:
            raise OptionError("a precomputed Gram matrix needs rows with known positions: compute the guide online.")
        if isinstance(self.matrix, Tensor):
            place = index.to(self.matrix.device)
            return self.matrix.index_select(0, place).index_select(1, place).to(rows.device)
        # A file is read in the order of its rows.
        ascending, back = np.unique(index.cpu().numpy(), return_inverse=True)
        lines = np.stack([np.asarray(self.matrix[int(row)])[ascending] for row in ascending])
        return torch.as_tensor(lines[np.ix_(back, back)], device=rows.device)


def normalised_gram(kernel: KernelFunction, rows: Tensor, dtype: torch.dtype, copies: int) -> tuple[Tensor, Tensor]:
    """Gram matrix of rows ``(members, n, d)`` divided by its mean diagonal, and that diagonal, ``(members,)``.

    A deep infinite network has entries near 1e10. What does not fit into memory so many times is refused.
    """
    members, n = rows.shape[:2]
    require_memory(
        copies * members * tensor_bytes(n, n, dtype=dtype),
        what=f"the guide's kernel matrix of {n} rows",
        remedy="Train on fewer rows.",
        device=rows.device,
    )
    gram = kernel.gram(rows).to(dtype)
    normaliser = gram.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    if not bool((normaliser > 0).all()) or not bool(torch.isfinite(normaliser).all()):
        raise DataError("the guide's kernel has no positive finite variance on the training rows.")
    gram /= normaliser[..., None, None]
    if not bool(torch.isfinite(gram).all()):
        raise DataError("the guide's kernel is not finite on the training rows: check the inputs or the kernel.")
    return gram, normaliser
