"""A loader as the source of a fit: first pass, held-out rows, scaled mini-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gdkl.estimators.kinds import Kind
from gdkl.estimators.loader_passes import ContentFilter, SeededPasses, split_by_position
from gdkl.estimators.loaders import FirstPass, as_loader, first_pass
from gdkl.estimators.plan import Plan
from gdkl.numerics import OptionError
from gdkl.training import Batch, BatchSource, LoaderBatches


@dataclass(frozen=True)
class LoaderSource:
    """A loader that was gone through once, as the source of a fit.

    ``encode`` scales targets to ``(outputs, b)``, or turns labels into class numbers ``(b,)``; ``filter`` takes
    held-out rows out of the batches, where the loader does not.
    """

    kind: Kind
    outputs: int
    loader: Iterable[Any]
    first: FirstPass
    encode: Callable[[NDArray[Any]], NDArray[Any]]
    held_out: tuple[NDArray[Any], NDArray[Any]] | None
    filter: ContentFilter | None

    @property
    def rows(self) -> int:
        """Number of rows to train on."""
        return self.first.rows

    def batches(self, plan: Plan, count: int) -> tuple[BatchSource, Batch | None]:
        """Mini-batches as the loader yields them; what is held out was decided before the first pass."""
        if plan.augmentation.crop:
            raise OptionError("augment is for images in an array: let the Dataset or DataLoader augment its own.")

        def scaled(X: NDArray[Any], y: NDArray[Any]) -> tuple[Tensor, Tensor]:
            rows = torch.as_tensor(self.kind.input.rows(X)).to(plan.device, plan.network_dtype)
            targets = torch.as_tensor(self.encode(y)).to(plan.device)
            return rows, targets.to(plan.algebra) if targets.is_floating_point() else targets

        def convert(item: Any) -> tuple[Tensor, Tensor]:
            pair = self.first.reader(item)
            return scaled(*(pair if self.filter is None else self.filter(*pair)))

        first = self.first
        source = LoaderBatches(self.loader, convert, first.rows, max(2, first.batch_size), scaled(first.X, first.y))
        return source, None if self.held_out is None else Batch(*scaled(*self.held_out))

    def identity(self) -> tuple[str, str | None]:
        """Of the rows in any order, and of the order."""
        return self.first.fingerprint, self.first.order


class ReadLoader(NamedTuple):
    """A loader after its first pass, before scales are chosen."""

    loader: Iterable[Any]
    first: FirstPass
    held_out: tuple[NDArray[Any], NDArray[Any]] | None
    filter: ContentFilter | None


def read_loader(
    X: Any, batch_size: int | None, seed: int, *, labels: bool, hold_out: bool, fingerprint: bool
) -> ReadLoader:
    """Choose the rows that are held out, if any, and go through a Dataset, DataLoader or list of batches once."""
    loader = as_loader(X, batch_size, seed)
    split = split_by_position(loader, seed) if hold_out else None
    if split is None:
        passes = SeededPasses(loader, seed)
        first = first_pass(passes, labels=labels, seed=seed, hold_out=hold_out, fingerprint=fingerprint)
        if first.held_out is None:
            return ReadLoader(passes, first, None, None)
        rows, targets, keys = first.held_out
        return ReadLoader(passes, first, (rows, targets), ContentFilter(keys, seed, first.rows + len(keys)))
    passes = SeededPasses(split[0], seed)
    first = first_pass(passes, labels=labels, seed=seed, fingerprint=fingerprint)
    if split[1] is None:
        return ReadLoader(passes, first, None, None)
    pairs = [first.reader(item) for item in SeededPasses(split[1], seed)]
    rows, targets = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    return ReadLoader(passes, first, (rows, targets), None)
