"""Mini-batches of any number of rows: from memory, a file or a DataLoader, the same for the same seed.

Wherever it can, a source gives the batch of a step by its number alone: a resumed run sees those of the unbroken one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from gdkl.numerics import DataError, OptionError

#: Mixes a seed with the number of an epoch or a step: a large prime, so that neighbouring seeds do not collide.
_STRIDE = 1_000_003


@dataclass(frozen=True)
class Batch:
    """Rows of one step, an even number of them, in random order: the first half and the second are a random split.

    Attributes:
        rows: ``(b, d)`` in the network's precision.
        targets: ``(outputs, b)`` in the algebra's precision, or class numbers ``(b,)``.
        index: Positions in the training set, where they are known.
    """

    rows: Tensor
    targets: Tensor
    index: Tensor | None = None


class BatchSource(Protocol):
    """Where batches come from."""

    @property
    def rows(self) -> int:
        """Number of training rows."""
        ...

    @property
    def batch_size(self) -> int:
        """Rows per step of one process."""
        ...

    def batch(self, step: int) -> Batch:
        """The batch of a step, counted from 0; called for each step in turn."""
        ...

    def sample(self, count: int, seed: int) -> Batch:
        """Some rows drawn at random, without anything that is random about a training batch."""
        ...


@dataclass(frozen=True)
class World:
    """Which of several processes this one is.

    Attributes:
        rank: Its number.
        size: How many there are.
    """

    rank: int = 0
    size: int = 1


#: One process that trains by itself.
ALONE = World()


def check_batch_size(batch_size: int, rows: int) -> int:
    """The even number of rows that a batch has, no more than there are; refuses one that cannot be split in two.

    Example:
        >>> check_batch_size(1024, rows=301)
        300
    """
    if batch_size < 2:
        raise OptionError(f"batch_size={batch_size!r} cannot be split into two halves: use at least 2.")
    size = min(batch_size, rows)
    if size < 2:
        raise DataError(f"{rows} rows cannot be split into two halves: give at least 2.")
    return size - size % 2


def step_generator(seed: int, step: int, device: torch.device | str = "cpu", rank: int = 0) -> torch.Generator:
    """Random numbers of one step, whatever was drawn before it.

    Example:
        >>> one, other = (torch.rand(1, generator=step_generator(0, 7)) for _ in range(2))
        >>> bool(one == other)
        True
    """
    # A spread-out integer, as torch recommends for seeds.
    mixed = (seed * _STRIDE + step) * _STRIDE + rank
    return torch.Generator(device).manual_seed((mixed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % 2**63)


class Epochs:
    """Positions of each step's rows: every epoch a new random order, cut into batches, the rest left out.

    Several processes cut the same order, so that in one step they see different rows.

    Example:
        >>> epochs = Epochs(10, 4, seed=0)
        >>> first = torch.cat([epochs.index(0), epochs.index(1)])
        >>> len(set(first.tolist())), epochs.steps
        (8, 2)
    """

    def __init__(self, rows: int, batch_size: int, seed: int, world: World = ALONE):
        self.rows = rows
        self.seed = seed
        self.world = world
        self.batch_size = check_batch_size(batch_size, rows // self.world.size)
        self.steps = rows // (self.batch_size * self.world.size)
        self._order: tuple[int, Tensor] | None = None

    def index(self, step: int) -> Tensor:
        """Positions ``(b,)`` of one step."""
        epoch, place = divmod(step, self.steps)
        if self._order is None or self._order[0] != epoch:
            generator = step_generator(self.seed, epoch)
            self._order = (epoch, torch.randperm(self.rows, generator=generator))
        start = (place * self.world.size + self.world.rank) * self.batch_size
        return self._order[1][start : start + self.batch_size]


class NumberedBatches(ABC):
    """Batches of rows that have positions, wherever they are stored.

    Args:
        epochs: Positions of each step's rows.
    """

    def __init__(self, epochs: Epochs):
        self._epochs = epochs

    @property
    def rows(self) -> int:
        """Number of training rows."""
        return self._epochs.rows

    @property
    def batch_size(self) -> int:
        """Rows per step."""
        return self._epochs.batch_size

    def batch(self, step: int) -> Batch:
        """The batch of a step."""
        return self.take(self._epochs.index(step))

    def sample(self, count: int, seed: int) -> Batch:
        """Some rows drawn at random."""
        order = torch.randperm(self.rows, generator=torch.Generator().manual_seed(seed))
        return self.take(order[:count])

    def take_pair(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Rows and targets at given positions."""
        batch = self.take(index)
        return batch.rows, batch.targets

    @abstractmethod
    def take(self, index: Tensor) -> Batch:
        """Rows at given positions, in that order."""


class TensorBatches(NumberedBatches):
    """Scaled rows ``(n, d)`` and targets ``(outputs, n)``, or class numbers ``(n,)``, in the device's memory."""

    def __init__(self, rows: Tensor, targets: Tensor, batch_size: int, seed: int, world: World = ALONE):
        if targets.shape[-1] != rows.shape[0]:
            raise DataError(f"rows {tuple(rows.shape)} and targets {tuple(targets.shape)} do not fit.")
        super().__init__(Epochs(rows.shape[0], batch_size, seed, world))
        self._rows, self._targets = rows, targets

    def take(self, index: Tensor) -> Batch:
        """Rows at given positions, in that order."""
        index = index.to(self._rows.device)
        return Batch(self._rows.index_select(0, index), self._targets.index_select(-1, index), index)


class ArrayBatches(NumberedBatches):
    """Rows that stay in an array or a memory-mapped file and are scaled a batch at a time.

    Args:
        rows: Number of training rows.
        fetch: From ascending positions to their scaled rows and targets, on the device.
        batch_size: Rows per step.
        seed: Of the order.
        world: Which process this is.
    """

    def __init__(
        self,
        rows: int,
        fetch: Callable[[np.ndarray[Any, Any]], tuple[Tensor, Tensor]],
        batch_size: int,
        seed: int,
        world: World = ALONE,
    ):
        super().__init__(Epochs(rows, batch_size, seed, world))
        self._fetch = fetch

    def take(self, index: Tensor) -> Batch:
        """Rows at given positions, in that order."""
        # Read in the order in which the rows lie in the file, and put back in the random one.
        ascending, order = index.sort()
        back = order.argsort()
        rows, targets = self._fetch(ascending.numpy())
        back = back.to(rows.device)
        return Batch(rows.index_select(0, back), targets.index_select(-1, back), index)


class LoaderBatches:
    """Batches as a DataLoader, or anything else that can be iterated over repeatedly, yields them in its own order.

    Args:
        loader: Yields pairs of rows and targets.
        convert: From such a pair to scaled rows and targets, on the device.
        rows: Number of training rows.
        batch_size: Rows that a batch has usually.
        subset: Rows and targets kept from an earlier pass, which `sample` draws from.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        convert: Callable[[Any], tuple[Tensor, Tensor]],
        rows: int,
        batch_size: int,
        subset: tuple[Tensor, Tensor],
    ):
        self._loader, self._convert, self._subset = loader, convert, subset
        self.rows = rows
        self.batch_size = check_batch_size(batch_size, rows)
        self._running: Iterator[Any] | None = None
        self._given = 0

    def batch(self, step: int) -> Batch:
        """The next batch, of the next epoch where one has ended; an odd row is left out.

        A loader has no batch by its number: a resumed run iterates over those that it has seen.
        """
        while True:
            rows, targets = self._next_pair()
            self._given += 1
            if self._given > step:
                break
        size = rows.shape[0] - rows.shape[0] % 2
        # A loader that does not shuffle may yield rows that belong together: the halves must be alike.
        order = torch.randperm(rows.shape[0], generator=step_generator(0, step))[:size].to(rows.device)
        return Batch(rows.index_select(0, order), targets.index_select(-1, order))

    def _next_pair(self) -> tuple[Tensor, Tensor]:
        """The next rows and targets, two rows at least."""
        passes, seen = 0, 0
        while True:
            if self._running is None:
                self._running = iter(self._loader)
            try:
                item = next(self._running)
            except StopIteration:
                self._running = None
                passes += 1
                if passes > 1:
                    raise DataError(
                        "the loader yields no batch of two rows or more: raise its batch_size."
                        if seen
                        else "the loader yields nothing when it is gone through again: give one that starts anew each "
                        "time, such as a list of batches."
                    ) from None
                continue
            seen += 1
            rows, targets = self._convert(item)
            if rows.shape[0] > 1:
                return rows, targets

    def sample(self, count: int, seed: int) -> Batch:
        """Some of the rows kept from an earlier pass."""
        rows, targets = self._subset
        order = torch.randperm(rows.shape[0], generator=torch.Generator().manual_seed(seed))[:count].to(rows.device)
        return Batch(rows.index_select(0, order), targets.index_select(-1, order))


def as_pair(item: Any, name: str = "a batch") -> tuple[Any, Any]:
    """What a loader yields, as rows and targets; anything but a pair is refused by the name of the batch.

    Example:
        >>> as_pair([1, 2])
        (1, 2)
    """
    if not isinstance(item, (tuple, list)) or len(cast("list[Any]", item)) != 2:
        if isinstance(item, (tuple, list)):
            count = len(cast("list[Any]", item))
            kind = f"has {count} part{'s' if count != 1 else ''}"
        elif isinstance(item, dict):
            kind = f"is a dict of {', '.join(map(repr, cast('dict[Any, Any]', item)))}"
        else:
            kind = f"is {type(item).__name__}"
        raise DataError(f"{name} of the loader {kind}: it must be a pair (x, y) of rows and their targets.")
    first, second = cast("list[Any]", item)
    return first, second
