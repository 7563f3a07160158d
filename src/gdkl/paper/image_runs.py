"""What the experiments on images share: precisions, scores of probabilities, and the time that steps take."""

from __future__ import annotations

import time

import numpy as np
import torch
from numpy.typing import NDArray

from gdkl import metrics
from gdkl.numerics import OptionError
from gdkl.predictive import FloatArray
from gdkl.training import Callback, StepReport

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


def algebra_dtype(algebra: str) -> torch.dtype:
    """Precision of the Gaussian processes by its name.

    Example:
        >>> algebra_dtype("float32")
        torch.float32
    """
    if algebra not in _DTYPES:
        raise OptionError(f"algebra={algebra!r} is not known: use {' or '.join(_DTYPES)}.")
    return _DTYPES[algebra]


def class_scores(probs: FloatArray, labels: NDArray[np.int64]) -> dict[str, float]:
    """Scores of class probabilities ``(m, classes)`` as result files have them."""
    probs = probs / probs.sum(axis=1, keepdims=True)
    scores = metrics.class_summary(probs, labels)
    return {
        "log_likelihood": -scores.pop("nll"),
        **scores,
        "mean_confidence": float(np.max(probs, axis=1).mean()),
    }


class StepTimer(Callback):
    """Counts steps and the time they take, without reading anything off the device."""

    every = 50

    def __init__(self) -> None:
        self.steps = 0
        self.seconds = 0.0
        self._last: tuple[int, float] | None = None

    def on_step(self, report: StepReport) -> None:
        """Add the steps since the last call; the first call, which holds warming up, only starts the clock."""
        now = time.perf_counter()
        if self._last is not None:
            self.steps += report.step - self._last[0]
            self.seconds += now - self._last[1]
        self._last = (report.step, now)

    @property
    def seconds_per_step(self) -> float | None:
        """Of the steps of this process: a run that went on from a checkpoint has taken others before."""
        return None if not self.steps else round(self.seconds / self.steps, 5)


def wait_for(device: torch.device) -> None:
    """Until everything asked of a device is done, so that a clock tells the truth."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
