"""Random numbers of torch's global generator, which networks draw weights and dropout from, for one fit at a time."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

import torch

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


def generator_state(device: torch.device) -> bytes:
    """The global generators' state, to see whether something drew from them."""
    state = torch.get_rng_state().numpy().tobytes()
    return state if device.type != "cuda" else state + torch.cuda.get_rng_state(device).numpy().tobytes()
