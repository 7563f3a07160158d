"""Inputs of the next step, computed on a GPU while the current step still runs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class Prefetcher:
    """Inputs of steps in order; on a GPU those of the next step are computed on a stream of their own.

    A batch and the guide's marginals on it are many short kernels that leave most of a GPU idle; beside the student's
    they cost next to nothing.

    Args:
        make: From the number of a step to its inputs; may not depend on anything that a step changes.
        device: Where they are computed.

    Example:
        >>> inputs = Prefetcher(lambda step: (torch.tensor(step),), torch.device("cpu"))
        >>> [int(*inputs(step)) for step in (4, 5)]
        [4, 5]
    """

    def __init__(self, make: Callable[[int], tuple[Tensor, ...]], device: torch.device):
        self._make = make
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._next: tuple[int, tuple[Tensor, ...], torch.cuda.Event] | None = None

    def __call__(self, step: int) -> tuple[Tensor, ...]:
        """Inputs of a step."""
        if self._stream is None:
            return self._make(step)
        if self._next is None or self._next[0] != step:
            self._next = self._start(step, self._stream)
        _, inputs, ready = self._next
        current = torch.cuda.current_stream(self._device)
        current.wait_event(ready)
        for value in inputs:
            # Allocated on the other stream: not to be freed there before this one is done with it.
            value.record_stream(current)
        self._next = self._start(step + 1, self._stream)
        return inputs

    def _start(self, step: int, stream: torch.cuda.Stream) -> tuple[int, tuple[Tensor, ...], torch.cuda.Event]:
        # After everything queued so far, which is the step before: that keeps the two streams together.
        stream.wait_stream(torch.cuda.current_stream(self._device))
        ready = torch.cuda.Event()
        with torch.cuda.stream(stream):
            inputs = self._make(step)
            ready.record(stream)
        return step, inputs, ready
