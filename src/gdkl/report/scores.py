"""Scores with standard errors, of the model and of what it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdkl import metrics
from gdkl.estimators.diagnostics import Evidence, Finding, Severity, counts, mean_and_error
from gdkl.predictive import ClassPredictive, FloatArray, Predictive, class_index

#: A simpler model is better if it is by this many nats per row, and by more than chance explains.
_CLEARLY = 0.1


@dataclass(frozen=True)
class Score:
    """A mean over rows with its standard error; NaN for one that has none."""

    value: float
    error: float = float("nan")


#: By name of the score.
Scores = Mapping[str, Score]


def scores_of(p: Predictive | ClassPredictive, y: NDArray[Any]) -> Scores:
    """All scores of one target, or of labels."""
    likelihood = {"log-likelihood": Score(*mean_and_error(p.log_prob(y)))}
    if isinstance(p, ClassPredictive):
        index = class_index(p.classes, y)
        right = (p.probs.argmax(axis=1) == index).astype(np.float64)
        brier = np.square(p.probs - np.eye(len(p.classes))[index]).sum(axis=1)
        return likelihood | {
            "accuracy": Score(*mean_and_error(right)),
            "Brier score": Score(*mean_and_error(brier)),
            "calibration error": Score(metrics.ece(p, y)),
        }
    low, high = p.interval(0.9)
    held = ((low <= y) & (y <= high)).astype(np.float64)
    return likelihood | {
        "CRPS": Score(*mean_and_error(p.crps(y))),
        "RMSE": _root(np.square(p.mean - y)),
        "90 % coverage": Score(*mean_and_error(held)),
        "90 % width": Score(*mean_and_error(high - low)),
    }


def _root(squares: FloatArray) -> Score:
    """Root of a mean; its standard error to first order."""
    mean, error = mean_and_error(squares)
    root = float(np.sqrt(mean))
    return Score(root, error / (2 * root) if root > 0 else 0.0)


@dataclass(frozen=True)
class Comparison:
    """A model beside another: how much more probable the held-out rows are under the first, in nats per row."""

    name: str
    lead: Score


def compare(e: Evidence, baselines: Mapping[str, Predictive | ClassPredictive]) -> list[Comparison]:
    """The model against each baseline, paired row by row."""
    return [
        Comparison(name, Score(*mean_and_error(e.log_prob - other.log_prob(e.y)))) for name, other in baselines.items()
    ]


def finding_of(comparisons: list[Comparison], rows: int) -> Finding | None:
    """Whether a simpler model predicts held-out rows better; None where there is nothing to compare with."""
    if not comparisons:
        return None
    best = min(comparisons, key=lambda one: one.lead.value)
    lead = best.lead
    text = (
        f"Log-likelihood per row {lead.value:+.2f} ± {lead.error:.2f} against the best of the simpler models "
        f"({best.name})."
    )
    if lead.value < -_CLEARLY and counts(-lead.value, lead.error, rows):
        remedy = f"The {best.name} is enough for these rows; or look at what it finds and this model does not."
        return Finding("simpler models", Severity.WARNING, text, lead.value, low=-_CLEARLY, remedy=remedy)
    if not counts(lead.value, lead.error, rows):
        text += f" The {best.name} does as well, by these rows."
        return Finding("simpler models", Severity.NOTE, text, lead.value, low=-_CLEARLY)
    return Finding("simpler models", Severity.FINE, text, lead.value, low=-_CLEARLY)
