"""Passes over a loader: each with random numbers of its own, so that a fit to a loader that shuffles is repeatable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gdkl.numerics import DataError
from gdkl.training import OwnRandomNumbers


class SeededPasses:
    """A loader that is gone through with random numbers of our own: one order a pass, the same for the same seed.

    A DataLoader that shuffles, its samplers and its Dataset draw from the global generators of torch, NumPy or Python
    unless they were given one of their own, which is left to them. For the time of a pass, and of it alone, the global
    ones are ours: neither the loader nor the user's own random numbers are changed by a fit.

    Args:
        loader: Anything that can be iterated over again and again.
        seed: Of the passes.

    Example:
        >>> import torch
        >>> from torch.utils.data import DataLoader
        >>> def orders(seed):
        ...     passes = SeededPasses(DataLoader(range(9), batch_size=None, shuffle=True), seed)
        ...     return list(passes), list(passes)
        >>> orders(0) == orders(0), orders(0)[0] == orders(0)[1]
        (True, False)
    """

    def __init__(self, loader: Iterable[Any], seed: int):
        self._loader, self._seed = loader, seed
        self._begun = 0

    def __iter__(self) -> Iterator[Any]:
        """What the loader yields, in a new pass.

        Raises:
            DataError: If rows of a Dataset have different shapes, so that they cannot be put together.
        """
        numbers = OwnRandomNumbers(self._seed, self._begun)
        self._begun += 1
        try:
            with numbers:
                running = iter(self._loader)
            while True:
                # What is done with a batch is outside: it draws from the generators as they were.
                with numbers:
                    try:
                        item = next(running)
                    except StopIteration:
                        return
                yield item
        except RuntimeError as error:
            # What torch says when it stacks them, in this process or in a worker.
            if "stack expects each tensor to be equal size" not in str(error) and "resize storage" not in str(error):
                raise
            raise DataError("the Dataset yields rows or targets of different shapes: make them all alike.") from error
