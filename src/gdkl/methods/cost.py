"""What exact training will cost, before it starts: seconds and bytes from the numbers of rows and steps."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from functools import cache

import torch

from gdkl.methods.data import TrainingData
from gdkl.numerics import GIB, GdklWarning, available_memory, require_memory, tensor_bytes, threads_for
from gdkl.numerics.memory import USABLE_PART

#: Floating-point operations of a step in units of (n/2)³: the student's factor, two solves and a product, and the
#: guide's factor and solve; for DKL a factor and an inverse of all rows.
_GUIDED_WORK, _EVIDENCE_WORK = 17 / 3, 8.0

#: Matrices of n/2 rows squared that a guided step holds at its peak, and of n rows squared for DKL.
_GUIDED_MATRICES, _EVIDENCE_MATRICES = 14, 8

#: What comes after the last step, where steps see a part of the rows: a factor of all rows, and for a temperature by
#: leave-one-out one more and its inverse. In units of n³ (4/3 of them, and as long again for copies) and in matrices of
#: n rows squared (measured: 4.2 to 5).
_FINISH_WORK, _FINISH_MATRICES = 8 / 3, 5

#: Time of a step that does not grow with n: a few hundred short operations.
_OVERHEAD_SECONDS = {"cpu": 1.5e-3, "cuda": 6e-3}

_TRIAL_SIZE = {"cpu": 768, "cuda": 4096}


#: Longer than this, and the user is told before the start.
_LONG_SECONDS = 600.0

#: Rows up to which inference is exact whenever it fits in memory.
ALWAYS_EXACT = 2000

#: No machine is slower: work that is quick even at this rate needs no trial.
_SLOWEST_RATE = 1e9


@dataclass(frozen=True)
class Cost:
    """An estimate.

    Attributes:
        seconds: Time of training.
        bytes: Memory at the peak of a step.
    """

    seconds: float
    bytes: int


def exact_cost(data: TrainingData, n_iter: int, *, guided: bool, rows_a_step: int | None = None) -> Cost:
    """Estimate exact training from the speed that this device shows in a short trial.

    Args:
        data: What is trained on.
        n_iter: Number of steps.
        guided: Whether each step conditions one half on the other, or takes the evidence of all rows.
        rows_a_step: Rows that a step sees; None for all.
    """
    device = data.rows.device
    rows = data.n if rows_a_step is None else min(data.n, rows_a_step)
    step = _work(data, rows, guided) / _rate(data, rows) + _OVERHEAD_SECONDS.get(device.type, 6e-3)
    finish = _finish_work(data) / _rate(data, data.n) if rows < data.n else 0.0
    return Cost(n_iter * step + finish, _bytes(data, rows, guided))


def prefers_exact(
    rows: int,
    outputs: int,
    members: int,
    n_iter: int,
    *,
    guided: bool,
    device: torch.device,
    dtype: torch.dtype,
    rows_a_step: int | None = None,
) -> bool:
    """Whether exact training fits in memory and in ten minutes on this device; if not, inducing points do.

    Up to `ALWAYS_EXACT` rows nothing is timed, so that small fits never depend on how busy the machine is.

    Args:
        rows: Number of training rows.
        outputs: Latent functions a row.
        members: Fits in the batch.
        n_iter: Number of steps.
        guided: As for `exact_cost`.
        device: Where to train.
        dtype: In which precision.
        rows_a_step: As for `exact_cost`.
    """
    blank = torch.empty((), dtype=dtype, device=device)
    data = TrainingData(blank.expand(members, rows, 1), blank.expand(members, outputs, rows))
    used = rows if rows_a_step is None else min(rows, rows_a_step)
    if _bytes(data, used, guided) > USABLE_PART * available_memory(device):
        return False
    if rows <= ALWAYS_EXACT or _all_work(data, used, n_iter, guided) < _SLOWEST_RATE * _LONG_SECONDS:
        return True
    return exact_cost(data, n_iter, guided=guided, rows_a_step=used).seconds <= _LONG_SECONDS


def check_cost(
    data: TrainingData, n_iter: int, *, guided: bool, rows_a_step: int | None = None, more_bytes: int = 0
) -> None:
    """Refuse exact training that does not fit in memory, and tell of one that will take long.

    Args:
        data: What is trained on.
        n_iter: Number of steps.
        guided: As for `exact_cost`.
        rows_a_step: As for `exact_cost`.
        more_bytes: What else a step holds.

    Raises:
        MemoryLimitError: If a step needs more memory than there is.
    """
    device = data.rows.device
    rows = data.n if rows_a_step is None else min(data.n, rows_a_step)
    needed = _bytes(data, rows, guided) + more_bytes
    require_memory(
        needed,
        what=f"exact training on {data.n} rows",
        remedy="Train on fewer rows, or with inference='sparse'.",
        device=device,
    )
    if _all_work(data, rows, n_iter, guided) < _SLOWEST_RATE * _LONG_SECONDS:
        return
    cost = exact_cost(data, n_iter, guided=guided, rows_a_step=rows)
    if cost.seconds > _LONG_SECONDS:
        warnings.warn(
            f"exact training on {data.n} rows for {n_iter} steps will take about {cost.seconds / 60:.0f} minutes and "
            f"{needed / GIB:.1f} GiB on {device}. inference='sparse', fewer rows or steps, or a "
            "GPU make it shorter.",
            GdklWarning,
            stacklevel=3,
        )


def _work(data: TrainingData, rows: int, guided: bool) -> float:
    """Floating-point operations of a step."""
    return (_GUIDED_WORK if guided else _EVIDENCE_WORK) * (rows / 2) ** 3 * data.members * data.outputs


def _finish_work(data: TrainingData) -> float:
    """Floating-point operations after the last step."""
    return _FINISH_WORK * float(data.n) ** 3 * data.members * data.outputs


def _all_work(data: TrainingData, rows: int, n_iter: int, guided: bool) -> float:
    """Floating-point operations of all steps of so many rows, and of what comes after them."""
    return _work(data, rows, guided) * n_iter + (_finish_work(data) if rows < data.n else 0.0)


def _rate(data: TrainingData, rows: int) -> float:
    """Operations a second on matrices of so many rows."""
    device = data.rows.device
    return _operations_per_second(str(device), data.targets.dtype, threads_for(rows) if device.type == "cpu" else 0)


def _bytes(data: TrainingData, rows: int, guided: bool) -> int:
    """Peak memory of a step of so many rows, or of what comes after the last."""
    size, count = (rows // 2 + 1, _GUIDED_MATRICES) if guided else (rows, _EVIDENCE_MATRICES)
    step = matrix_bytes(data, size, count)
    return step if rows == data.n else max(step, matrix_bytes(data, data.n, _FINISH_MATRICES))


def matrix_bytes(data: TrainingData, rows: int, count: int) -> int:
    """Bytes of ``count`` square matrices over ``rows`` rows for each member and output."""
    return data.members * data.outputs * count * tensor_bytes(rows, rows, dtype=data.targets.dtype)


@cache
def _operations_per_second(device: str, dtype: torch.dtype, threads: int) -> float:
    """Speed of a triangular solve, the operation in the middle between a factorisation and a product."""
    size = _TRIAL_SIZE.get(torch.device(device).type, 1024)
    before = torch.get_num_threads()
    matrix = torch.eye(size, dtype=dtype, device=device) + 1.0 / size
    best = float("inf")
    try:
        if threads:
            torch.set_num_threads(threads)
        for _ in range(3):
            started = time.perf_counter()
            torch.linalg.solve_triangular(matrix, matrix, upper=False)
            if matrix.is_cuda:
                torch.cuda.synchronize(device)
            best = min(best, time.perf_counter() - started)
    finally:
        torch.set_num_threads(before)
    return size**3 / best
