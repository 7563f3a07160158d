"""Do probabilities and intervals keep what they promise, and do outliers stay within what the model thinks possible?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gdkl import metrics
from gdkl.estimators.diagnostics.evidence import Evidence
from gdkl.estimators.diagnostics.finding import Finding, Severity
from gdkl.predictive import ClassPredictive, FloatArray, Predictive

#: Probability of the bands: one healthy model in a thousand lies outside.
CHANCE = 0.999

#: Levels of the intervals that are looked at: the body of the distribution and its tails.
_LEVELS = (0.5, 0.9)

#: A coverage or a probability that is off by this much is a problem whatever predictions are for, and by as little as
#: the second number it hardly matters.
_FAR, _NEAR = 0.15, 0.03

#: Robust deviations from the median that a target hardly ever has: as for columns, see `gdkl.inputs.tables`.
_TAIL = 20.0

#: A target beyond the interval of this level is a surprise: of a hundred rows, hardly ever one is.
_SURPRISE = 0.999

#: So many surprises change intervals of 95 %, too.
_SURPRISES = 0.02


def check_intervals(e: Evidence, p: Predictive) -> Iterator[Finding]:
    """Whether intervals hold as many targets as they promise, and whether predictions lie on the whole too low."""
    found: list[Finding] = []
    for level in _LEVELS:
        held = metrics.coverage(p, e.y, level)
        # A noise learned from n rows has a deviation known to 1 / √(2n), which moves the coverage of both levels by
        # about √(½ · level · (1 − level) / n).
        rows = max(1, int(_as_many(e, 0.5)))
        low, high = (float(end) for end in metrics.coverage_band(rows, level, CHANCE))
        text = (
            f"{100 * level:.0f} % intervals hold {100 * held:.0f} % of {len(e)} targets; chance allows {100 * low:.0f} "
            f"to {100 * high:.0f} %."
        )
        if low <= held <= high:
            found.append(Finding("calibration", Severity.FINE, text, held, low, high))
            continue
        severity = _severity(abs(held - level))
        if held < low:
            words = "Intervals are too narrow."
            remedy = (
                "Look at 'overfitting' and 'shift' first. Conformal prediction on rows of its own widens intervals to "
                "any coverage (MAPIE)."
            )
        else:
            # What is safe is no problem.
            severity = max(severity, Severity.WARNING, key=list(Severity).index)
            words = "Intervals are too wide: the model knows more than it says."
            remedy = (
                "Safe, but wasteful: look for outliers in the targets of fit, or for a warp that suits them better."
            )
        found.append(Finding("calibration", severity, f"{text} {words}", held, low, high, remedy))
    yield min(found, key=lambda finding: list(Severity).index(finding.severity))
    yield _check_bias(e, p.cdf(e.y))


def _as_many(e: Evidence, part: float) -> float:
    """Held-out rows, fewer by what is not known after n training rows: 1 / (1/m + part/n)."""
    return 1 / (1 / len(e) + (0 if e.training is None else part / len(e.training)))


def _check_bias(e: Evidence, pit: FloatArray) -> Finding:
    # The level of the function is known to σ/√n, which moves all quantiles alike, by the deviation that one row has.
    middle, error = float(pit.mean()), float(np.sqrt(1 / 12 / _as_many(e, 1.0)))
    off = (middle - 0.5) / error
    half = 3.3 * error
    text = (
        f"Targets lie at the quantile {middle:.2f} of their predictions in the mean; 0.5 is right, ±{half:.2f} chance."
    )
    bounds = 0.5 - half, 0.5 + half
    if abs(off) <= 3.3:
        return Finding("bias", Severity.FINE, text, middle, *bounds)
    words = "too low" if off > 0 else "too high"
    remedy = "See 'shift': rows of another time or place have another level; fit to rows like those to be predicted."
    severity = _severity(abs(middle - 0.5))
    return Finding("bias", severity, f"{text} Predictions are {words} on the whole.", middle, *bounds, remedy)


def check_surprises(e: Evidence, p: Predictive) -> Finding:
    """Whether far more targets than there should be lie where the model thinks nothing possible."""
    from scipy.stats import binom  # noqa: PLC0415  (slow to import)

    pit = p.cdf(e.y)
    outside = np.flatnonzero(np.minimum(pit, 1 - pit) < (1 - _SURPRISE) / 2)
    most = float(binom.ppf(CHANCE, len(e), 1 - _SURPRISE))
    text = (
        f"{len(outside)} of {len(e)} targets lie outside their {100 * _SURPRISE:.1f} % interval; chance allows "
        f"{most:.0f}."
    )
    if len(outside) <= most:
        return Finding("outliers", Severity.FINE, text, len(outside), high=most)
    rows = ", ".join(str(row) for row in outside[:8]) + (", ..." if len(outside) > 8 else "")
    remedy = f"Look at rows {rows} (numbered from 0): mistakes in the data, or tails that are heavier than the model's."
    if len(outside) > _FAR * len(e):
        remedy = "These are no outliers but a model too sure of itself: see 'calibration'."
    severity = Severity.WARNING if len(outside) > _SURPRISES * len(e) else Severity.NOTE
    return Finding("outliers", severity, text, len(outside), high=most, remedy=remedy)


def check_tails(e: Evidence) -> Finding | None:
    """Whether the targets have extreme values that a warp should shorten; None where their spread is not known."""
    values = e.y if e.training is None else np.concatenate([e.training.targets, e.y])
    warp = e.estimator.target_.warps[e.output or 0]
    warped = values if warp is None else warp.forward(values)
    centre = np.median(warped)
    away = np.abs(warped - centre)
    low, high = np.percentile(warped, [25, 75])
    # The quartiles of a normal distribution are 1.349 deviations apart.
    spread = float((high - low) / 1.349)
    if spread <= 0:
        return None
    worst = float(away.max() / spread)
    name = "The targets" if warp is None else "The warped targets"
    text = f"{name} reach {worst:.0f} robust standard deviations from their median."
    if worst <= _TAIL:
        return Finding("tails", Severity.FINE, text, worst, high=_TAIL)
    remedy = (
        "Check the extreme values; then warp='auto', or 'log' for positive targets."
        if warp is None
        else ("Check the extreme values: they are beyond what the warp can shorten.")
    )
    return Finding("tails", Severity.NOTE, text, worst, high=_TAIL, remedy=remedy)


def check_probabilities(e: Evidence, p: ClassPredictive) -> Finding:
    """Whether classes that are given 80 % come true in 80 % of the rows."""
    error, most = metrics.ece(p, e.y), metrics.ece_band(p, CHANCE)
    sure, right = float(p.probs.max(axis=1).mean()), metrics.accuracy(p, e.y)
    text = (
        f"The expected calibration error is {error:.3f}; right probabilities stay below {most:.3f}. Mean confidence "
        f"{100 * sure:.0f} %, accuracy {100 * right:.0f} %."
    )
    if error <= most:
        return Finding("calibration", Severity.FINE, text, error, high=most)
    severity = _severity(error)
    if sure > right:
        words = "Probabilities are too sure of themselves."
        remedy = "Look at 'overfitting' and 'shift'; or calibrate on rows of their own (CalibratedClassifierCV)."
    else:
        words = "Probabilities are too cautious."
        remedy = "Safe for a decision; calibrate on rows of their own (CalibratedClassifierCV) where costs are weighed."
    return Finding("calibration", severity, f"{text} {words}", error, high=most, remedy=remedy)


def _severity(off: float) -> Severity:
    """By how much a coverage or a probability is off."""
    return Severity.PROBLEM if off > _FAR else Severity.WARNING if off > _NEAR else Severity.NOTE
