"""Progress of a training run: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from gdkl.training.callbacks import Callback, StepReport


class ProgressDisplay(Callback):
    """A progress bar on a terminal, ten plain lines elsewhere.

    Args:
        description: What is being trained.
        stream: Where to write; standard error by default, so that results on standard output stay clean.
    """

    def __init__(self, description: str, stream: TextIO | None = None):
        self.description = description
        self.stream = stream if stream is not None else sys.stderr
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._started = 0.0

    def on_start(self, n_iter: int) -> None:
        """Open the bar."""
        self._started = time.monotonic()
        self.every = max(1, n_iter // (200 if self.stream.isatty() else 10))
        if self.stream.isatty():
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[objective]}"),
                TimeRemainingColumn(),
            )
            self._progress = Progress(*columns, console=Console(file=self.stream), transient=True)
            self._progress.start()
            self._task = self._progress.add_task(self.description, total=n_iter, objective="")

    def on_step(self, report: StepReport) -> bool | None:
        """Move the bar or write a line."""
        objective = report.values["objective"]
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=report.step, objective=f"objective {objective:.4f}")
        else:
            elapsed = time.monotonic() - self._started
            print(
                f"{self.description}: step {report.step} of {report.n_iter}, objective {objective:.4f}, "
                f"{elapsed:.1f} s",
                file=self.stream,
                flush=True,
            )
        return None

    def on_end(self) -> None:
        """Close the bar."""
        if self._progress is not None:
            self._progress.stop()


class EpochProgress(ProgressDisplay):
    """Progress of a run over batches: epochs, rows per second, the objective and its terms, time left.

    Args:
        description: What is being trained.
        rows_per_step: Rows that all processes see in a step.
        stream: Where to write; standard error by default.
        lines: Lines that a run writes where there is no terminal.
    """

    #: Quantities that are not terms of the objective.
    _OTHERS = ("objective", "learning_rate", "epoch", "step")

    def __init__(self, description: str, rows_per_step: int, stream: TextIO | None = None, lines: int = 20):
        super().__init__(description, stream)
        self.rows_per_step = rows_per_step
        self.lines = lines
        self._last: tuple[int, float] | None = None

    def on_start(self, n_iter: int) -> None:
        """Open the bar."""
        super().on_start(n_iter)
        self._last = None
        if not self.stream.isatty():
            self.every = max(1, n_iter // self.lines)

    def on_step(self, report: StepReport) -> bool | None:
        """Move the bar or write a line."""
        now = time.monotonic()
        before, then = self._last if self._last is not None else (report.step - self.every, self._started)
        rate = (report.step - before) / max(now - then, 1e-9)
        self._last = (report.step, now)
        terms = ", ".join(f"{name} {value:.4g}" for name, value in report.values.items() if name not in self._OTHERS)
        left = (report.n_iter - report.step) / rate
        line = (
            f"epoch {report.values['epoch']:.1f}, {rate * self.rows_per_step:,.0f} rows/s, "
            f"objective {report.values['objective']:.4f} ({terms})"
        )
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=report.step, objective=line)
        else:
            print(
                f"{self.description}: step {report.step} of {report.n_iter}, {line}, {left:.0f} s left",
                file=self.stream,
                flush=True,
            )
        return None
