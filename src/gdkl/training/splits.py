"""Random halves of the rows, drawn in bulk."""

from __future__ import annotations

import torch

from gdkl.gp import Split
from gdkl.numerics import DataError


class SplitSampler:
    """Draws random splits of ``n`` rows into two halves, one a member.

    Drawn on the CPU whatever the device, so that a seed means the same splits everywhere.

    Args:
        n: Number of rows.
        members: Number of independent splits a step.
        seed: Seed of the sequence.
        device: Where the index tensors are wanted.

    Example:
        >>> split = SplitSampler(5, members=1, seed=0).draw(3)
        >>> split.observed.shape, split.held_out.shape
        (torch.Size([3, 1, 2]), torch.Size([3, 1, 3]))
    """

    def __init__(self, n: int, members: int, seed: int, device: torch.device | str = "cpu"):
        if n < 2:
            raise DataError(f"a split into two halves needs at least 2 rows; got {n}.")
        self.n = n
        self.members = members
        self.device = device
        self._generator = torch.Generator().manual_seed(seed)

    def draw(self, count: int) -> Split:
        """The next ``count`` splits: indices ``(count, members, n // 2)`` and ``(count, members, n − n // 2)``."""
        # In float32 whatever torch's default is: a seed means the same splits everywhere.
        shape = (count, self.members, self.n)
        order = torch.rand(shape, generator=self._generator, dtype=torch.float32).argsort(dim=-1)
        half = self.n // 2
        # In order inside each half: rows are then picked from memory as they lie there.
        observed, held_out = (
            part.sort(dim=-1).values.to(self.device) for part in (order[..., :half], order[..., half:])
        )
        return Split(observed, held_out)
