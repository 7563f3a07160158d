"""How many rows are done: a line that is renewed on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from gdkl.cli.failures import say

if TYPE_CHECKING:
    from rich.status import Status

#: Seconds between two plain lines, and between two looks of the line on a terminal.
_LINE, _LOOK = 10.0, 0.2


class RowProgress:
    """Tell of rows on standard error.

    Args:
        what: What is done to them, such as "predicted".
        shown: Whether to tell at all.
    """

    def __init__(self, what: str, *, shown: bool = True):
        self._what, self._shown = what, shown
        self._status: Status | None = None

    def __enter__(self) -> Self:
        self._started = self._last = time.monotonic()
        if self._shown and sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415  (help does not need it)

            self._status = Console(stderr=True).status("")
            self._status.start()
        return self

    def update(self, rows: int) -> None:
        """So many rows are done."""
        now = time.monotonic()
        if not self._shown or now - self._last < (_LINE if self._status is None else _LOOK):
            return
        self._last = now
        line = f"{rows:,} rows {self._what}, {rows / (now - self._started):,.0f} per second"
        if self._status is None:
            say(line)
        else:
            self._status.update(line)

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
