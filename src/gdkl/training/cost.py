"""What exact training costs, from the numbers of rows and steps alone: no timing, so the same on a busy machine."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch

from gdkl.numerics import GIB, GdklWarning, require_memory, tensor_bytes
from gdkl.numerics.memory import USABLE_PART
from gdkl.training.data import TrainingData

#: Floating-point operations of a step in units of (n/2)³: the student's factor, two solves and a product, and the
#: guide's factor and solve; for DKL a factor and an inverse of all rows.
_GUIDED_WORK, _EVIDENCE_WORK = 17 / 3, 8.0

#: Matrices of n/2 rows squared that a guided step holds at its peak, and of n rows squared for DKL.
_GUIDED_MATRICES, _EVIDENCE_MATRICES = 14, 8

#: What comes after the last step, where steps see a part of the rows: a factor of all rows, and for a temperature by
#: leave-one-out one more and its inverse. In units of n³ (4/3 of them, and as long again for copies) and in matrices of
#: n rows squared (measured: 4.2 to 5).
_FINISH_WORK, _FINISH_MATRICES = 8 / 3, 5

#: Nominal rates of dense float64 algebra in operations per second: two cores of a server CPU, a data-centre GPU.
NOMINAL_RATE = {"cpu": 3e10, "cuda": 2e12}

#: Time of a step that does not grow with n: a few hundred short operations.
_OVERHEAD_SECONDS = {"cpu": 1.5e-3, "cuda": 6e-3}

#: Longer than this, and inducing points are preferred, or the user is warned before the start.
LONG_SECONDS = 600.0

#: Rows up to which inference is exact whenever it fits in memory.
ALWAYS_EXACT = 2000


@dataclass(frozen=True)
class Problem:
    """The size of an exact fit.

    A guided step conditions one half of its rows on the other; else it takes the evidence of all. ``rows_per_step`` is
    None for all rows, ``device`` is "cpu" or "cuda".
    """

    rows: int
    outputs: int
    members: int
    guided: bool
    rows_per_step: int | None = None
    dtype: torch.dtype = torch.float64
    device: str = "cpu"

    @classmethod
    def of(cls, data: TrainingData, *, guided: bool, rows_per_step: int | None = None) -> Problem:
        """The size of training on some data."""
        place = data.targets.dtype, data.rows.device.type
        return cls(data.n, data.outputs, data.members, guided, rows_per_step, *place)

    @property
    def used(self) -> int:
        """Rows that a step sees."""
        return self.rows if self.rows_per_step is None else min(self.rows, self.rows_per_step)

    def seconds(self, n_iter: int) -> float:
        """Estimated time of so many steps and of what comes after them, at the nominal rate.

        Example:
            >>> round(Problem(4000, 1, 1, guided=True).seconds(2000) / 60)
            50
        """
        rate = NOMINAL_RATE.get(self.device, NOMINAL_RATE["cuda"])
        step = (_GUIDED_WORK if self.guided else _EVIDENCE_WORK) * (self.used / 2) ** 3
        finish = _FINISH_WORK * float(self.rows) ** 3 if self.used < self.rows else 0.0
        overhead = n_iter * _OVERHEAD_SECONDS.get(self.device, _OVERHEAD_SECONDS["cuda"])
        return overhead + (n_iter * step + finish) * self.members * self.outputs / rate

    def bytes(self) -> int:
        """Peak memory of a step, or of what comes after the last."""
        size, count = (self.used // 2 + 1, _GUIDED_MATRICES) if self.guided else (self.used, _EVIDENCE_MATRICES)
        step = self._matrices(size, count)
        return step if self.used == self.rows else max(step, self._matrices(self.rows, _FINISH_MATRICES))

    def _matrices(self, size: int, count: int) -> int:
        return self.members * self.outputs * count * tensor_bytes(size, size, dtype=self.dtype)


def prefers_exact(problem: Problem, n_iter: int, memory: int) -> bool:
    """Whether a fit is exact by default: it fits in memory, and has at most 2000 rows or takes at most ten minutes.

    Args:
        problem: Its size.
        n_iter: Number of steps.
        memory: Bytes that are free on the device.

    Example:
        >>> [prefers_exact(Problem(n, 1, 1, guided=True), 2000, 2**34) for n in (2000, 2300, 10_000)]
        [True, True, False]
    """
    if problem.bytes() > USABLE_PART * memory:
        return False
    return problem.rows <= ALWAYS_EXACT or problem.seconds(n_iter) <= LONG_SECONDS


def check_cost(problem: Problem, n_iter: int, device: torch.device, more_bytes: int = 0) -> None:
    """Refuse exact training that does not fit in memory (a step holds ``more_bytes`` too), warn of one that is long."""
    needed = problem.bytes() + more_bytes
    require_memory(
        needed,
        what=f"exact training on {problem.rows} rows",
        remedy="Train on fewer rows, or with inference='sparse'.",
        device=device,
    )
    seconds = problem.seconds(n_iter)
    if seconds > LONG_SECONDS:
        warnings.warn(
            f"exact training on {problem.rows} rows for {n_iter} steps may take about {seconds / 60:.0f} minutes and "
            f"{needed / GIB:.1f} GiB on {device}. inference='sparse', fewer rows or steps, or a GPU make it shorter.",
            GdklWarning,
            stacklevel=3,
        )
