"""Ctrl-C during training ends it after the current step, with a usable model."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class InterruptGuard:
    """While active, the first Ctrl-C only sets a flag; a second one raises as usual.

    A signal that landed in the middle of an optimiser step would leave some parameters moved and others not.
    Outside the main thread, where Python delivers no signals, it does nothing.

    Example:
        >>> with InterruptGuard() as guard:
        ...     guard.requested
        False
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: signal.Handlers | object | None = None
        self._active = False

    def __enter__(self) -> InterruptGuard:
        if threading.current_thread() is threading.main_thread():
            previous = signal.getsignal(signal.SIGINT)
            # A handler that is not Python's own stays.
            if previous is signal.default_int_handler:
                signal.signal(signal.SIGINT, self._handle)
                self._previous, self._active = previous, True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._active:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._active = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
