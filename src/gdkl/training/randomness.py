"""Random numbers of global generators, which networks and loaders draw from, for one fit at a time."""

from __future__ import annotations

import random
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from gdkl.training.batches import step_generator

#: The global generator is one for all threads: whoever seeds it must be alone with it.
_GENERATOR = threading.RLock()


@contextmanager
def seeded(seed: int, device: torch.device) -> Generator[None]:
    """Seed torch's global generators for a while, alone, and put the user's state back.

    Example:
        >>> with seeded(0, torch.device("cpu")):
        ...     first = torch.rand(1)
        >>> with seeded(0, torch.device("cpu")):
        ...     print(bool(torch.rand(1) == first))
        True
    """
    devices = [device] if device.type == "cuda" else []
    with _GENERATOR, torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


class OwnRandomNumbers:
    """A stretch of random numbers that is gone on with each time it is entered, whatever was drawn meanwhile.

    Inside, the global generators of torch (on the CPU), NumPy and Python are its own; outside they are the user's, as
    if nothing had been drawn.

    Args:
        seed: Of the numbers.
        part: Other parts of one seed have other numbers.

    Example:
        >>> one, other = OwnRandomNumbers(0), OwnRandomNumbers(0)
        >>> def draw(numbers):
        ...     with numbers:
        ...         return float(torch.rand(1)), np.random.rand(), random.random()
        >>> first, second = draw(one), draw(one)
        >>> first == second, (draw(other), draw(other)) == (first, second)
        (False, True)
    """

    def __init__(self, seed: int, part: int = 0):
        generator = step_generator(seed, part)
        numpy_seed, python_seed = torch.randint(2**31, (2,), generator=generator).tolist()
        self._states: _States = (
            generator.get_state(),
            np.random.RandomState(numpy_seed).get_state(),
            random.Random(python_seed).getstate(),
        )
        self._outside: list[_States] = []

    def __enter__(self) -> None:
        _GENERATOR.acquire()
        self._outside.append(_states())
        _restore(self._states)

    def __exit__(self, *unused: object) -> None:
        self._states = _states()
        _restore(self._outside.pop())
        _GENERATOR.release()


#: Of torch, NumPy and Python.
_States = tuple[torch.Tensor, Any, Any]


def _states() -> _States:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002 (not ours: the user's)


def _restore(states: _States) -> None:
    of_torch, of_numpy, of_python = states
    torch.set_rng_state(of_torch)
    np.random.set_state(of_numpy)  # noqa: NPY002 (not ours: the user's)
    random.setstate(of_python)


def generator_state(device: torch.device) -> bytes:
    """The global generators' state, to see whether something drew from them."""
    state = torch.get_rng_state().numpy().tobytes()
    return state if device.type != "cuda" else state + torch.cuda.get_rng_state(device).numpy().tobytes()
