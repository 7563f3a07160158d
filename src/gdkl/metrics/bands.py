"""What chance alone allows: where scores of calibration lie when every probability is right."""

from __future__ import annotations

import numpy as np

from gdkl.metrics.classification import N_BINS, Probabilities, check_classification
from gdkl.numerics import OptionError
from gdkl.predictive import ClassPredictive, FloatArray

#: Draws of labels for a band of the calibration error, and numbers that are held at a time.
_DRAWS, _AT_A_TIME = 2000, 2**22


def coverage_band(n: int, level: float | FloatArray, chance: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Where the coverage of ``n`` independent targets lies with a probability of ``chance``, if intervals are right.

    Args:
        n: Number of targets.
        level: Of the interval, or several of them.
        chance: Probability of the band.

    Example:
        >>> low, high = coverage_band(100, 0.9)
        >>> print(low, high)
        0.84 0.95
    """
    from scipy.stats import binom  # noqa: PLC0415  (slow to import)

    if n < 1:
        raise OptionError(f"n={n!r} is not allowed: a band is of one target at least.")
    _check_chance(chance)
    tail = (1 - chance) / 2
    return binom.ppf(tail, n, level) / n, binom.ppf(1 - tail, n, level) / n


def ece_band(probs: Probabilities, chance: float = 0.95, n_bins: int = N_BINS, random_state: int = 0) -> float:
    """What the expected calibration error stays below with a probability of ``chance``, if all probabilities are right.

    The error of finitely many labels is never zero. Labels are drawn from the probabilities and scored.

    Args:
        probs: What ``predict_distribution`` returned, or class probabilities ``(n, classes)``.
        chance: Probability of the band.
        n_bins: Bins of confidence, as for `ece`.
        random_state: Seed of the draws.

    Example:
        >>> round(ece_band([[0.5, 0.5]], chance=0.9), 2)
        0.5
    """
    _check_chance(chance)
    given = probs.probs if isinstance(probs, ClassPredictive) else np.asarray(probs)
    p, _ = check_classification(given, np.zeros(len(given), dtype=int), n_bins)
    top = p.max(axis=1)
    place = np.clip(np.digitize(top, np.linspace(0.0, 1.0, n_bins + 1)) - 1, 0, n_bins - 1)
    member = np.eye(n_bins)[place]
    generator = np.random.default_rng(random_state)
    errors: list[FloatArray] = []
    for part in np.array_split(np.arange(_DRAWS), -(-_DRAWS * len(p) // _AT_A_TIME)):
        right = generator.uniform(size=(len(part), len(p))) < top
        # Of each bin the sum of right − confidence, whose absolute value counts.
        errors.append(np.abs((right - top) @ member).sum(axis=1) / len(p))
    return float(np.quantile(np.concatenate(errors), chance))


def _check_chance(chance: float) -> None:
    if not 0 < chance < 1:
        raise OptionError(f"chance={chance!r} must lie strictly between 0 and 1.")
