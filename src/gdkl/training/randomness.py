"""The global random generators, which networks and loaders draw from, owned by one fit at a time."""

from __future__ import annotations

import random
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from gdkl.training.batches import step_generator

#: The global generator is shared by all threads: one fit at a time may seed it.
_GENERATOR = threading.RLock()

#: Its type stubs do not know that generators can be changed.
_NUMPY: Any = np.random


@contextmanager
def seeded(seed: int, device: torch.device) -> Generator[None]:
    """Seed torch's global generators inside the context, exclusively, and restore the user's state.

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
    """A sequence of random numbers that continues each time the context is entered, whatever was drawn meanwhile.

    Inside, the global generators of torch (on the CPU), NumPy and Python are its own; outside they are the user's.

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
        self._torch, self._python = generator.get_state(), random.Random(python_seed).getstate()
        # A change of generators is far quicker than one of their states.
        self._numpy = np.random.MT19937(numpy_seed)
        self._outside: list[tuple[torch.Tensor, Any, Any, Any]] = []

    def __enter__(self) -> None:
        _GENERATOR.acquire()
        of_numpy = _NUMPY.get_bit_generator(), _NUMPY.get_state(legacy=False)
        self._outside.append((torch.get_rng_state(), *of_numpy, random.getstate()))
        torch.set_rng_state(self._torch)
        _NUMPY.set_bit_generator(self._numpy)
        random.setstate(self._python)

    def __exit__(self, *unused: object) -> None:
        self._torch, self._python = torch.get_rng_state(), random.getstate()
        of_torch, generator, of_numpy, of_python = self._outside.pop()
        torch.set_rng_state(of_torch)
        _NUMPY.set_bit_generator(generator)
        if of_numpy["has_gauss"]:
            # Normal numbers are drawn by twos, and the second would be lost.
            _NUMPY.set_state(of_numpy)
        random.setstate(of_python)
        _GENERATOR.release()


def generator_state(device: torch.device) -> bytes:
    """The global generators' state, to see whether something drew from them."""
    state = torch.get_rng_state().numpy().tobytes()
    return state if device.type != "cuda" else state + torch.cuda.get_rng_state(device).numpy().tobytes()
