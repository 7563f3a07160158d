"""Random splits of the rows into halves, drawn in bulk."""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor

from gdkl.gp import Split
from gdkl.numerics import DataError, OptionError


class SplitSampler:
    """Draws random splits of ``n`` rows into two halves, one per member.

    A split may be of some of the rows only, and its held-out half may be joined by further rows, which have no labels.
    Drawn on the CPU whatever the device, so that a seed means the same splits everywhere.

    Args:
        labels: Class numbers, ``(members, n)``, for halves that have as many rows of each class, up to one. Without
            them a class that one half has too many of is one that the other lacks: class frequencies learned from
            either are wrong for the other. On 200 images of CIFAR-10 that costs the guide's held-out predictions 0.1
            in log-likelihood and 6 % in accuracy.
        most: Rows that a split has at most, drawn afresh each time; None for all.
        further: Numbers of further rows, which have no labels. Some are drawn for each split and come after those held
            out.
        further_each: How many; None for as many as are held out.
        rows: Which rows each member's splits are of, ``(members, n)`` ascending numbers, where there are others; None
            for all from 0 on.

    Example:
        >>> split = SplitSampler(5, members=1, seed=0).draw(3)
        >>> split.observed.shape, split.held_out.shape
        (torch.Size([3, 1, 2]), torch.Size([3, 1, 3]))
    """

    def __init__(
        self,
        n: int,
        members: int,
        seed: int,
        device: torch.device | str = "cpu",
        *,
        labels: Tensor | None = None,
        most: int | None = None,
        further: range | None = None,
        further_each: int | None = None,
        rows: Tensor | None = None,
    ):
        if n < 2:
            raise DataError(f"a split into two halves needs at least 2 rows; got {n}.")
        if most is not None and most < 2:
            raise OptionError(f"batch_size={most} leaves no rows to hold out: use 2 at least, or 0 for all rows.")
        self.n = n
        self.members = members
        self.seed = seed
        self.device = device
        self.used = n if most is None else min(n, most)
        self.further = further
        self.further_each = further_each
        self._labels = None if labels is None else labels.cpu()
        self._rows = None if rows is None else rows.cpu()
        self._generator = torch.Generator().manual_seed(seed)

    def restarted(self) -> SplitSampler:
        """The same sequence from its first split."""
        other = copy(self)
        other._generator = torch.Generator().manual_seed(self.seed)
        return other

    def draw(self, count: int) -> Split:
        """The next ``count`` splits: indices ``(count, members, n1)`` and ``(count, members, n2)``.

        n1 is half of the rows used, rounded down, and n2 the rest and the further rows.
        """
        # In float32 whatever torch's default is: a seed means the same splits everywhere.
        shape = (count, self.members, self.n)
        order = torch.rand(shape, generator=self._generator, dtype=torch.float32).argsort(dim=-1)
        order = order[..., : self.used]
        if self._labels is None:
            halves = order.tensor_split([self.used // 2], dim=-1)
        else:
            order = self._class_by_class(order, self._labels)
            halves = order[..., 1::2], order[..., ::2]
        # In order inside each half: rows are then picked from memory as they lie there.
        halves = [part.sort(dim=-1).values for part in halves]
        if self._rows is not None:
            halves = [torch.take_along_dim(self._rows.expand(count, -1, -1), part, dim=-1) for part in halves]
        observed, held_out = (part.to(self.device) for part in halves)
        if self.further is not None:
            each = held_out.shape[-1] if self.further_each is None else self.further_each
            bounds = self.further.start, self.further.stop
            chosen = torch.randint(*bounds, (count, self.members, each), generator=self._generator)
            held_out = torch.cat([held_out, chosen.to(self.device)], dim=-1)
        return Split(observed, held_out)

    def _class_by_class(self, order: Tensor, labels: Tensor) -> Tensor:
        """Rows of one class after those of another; classes in a random order, so that an odd row goes either way."""
        count = int(labels.max()) + 1
        place = torch.rand((*order.shape[:2], count), generator=self._generator, dtype=torch.float32).argsort(dim=-1)
        classes = labels.expand(len(order), -1, -1).gather(-1, order)
        return order.gather(-1, place.gather(-1, classes).argsort(dim=-1, stable=True))
