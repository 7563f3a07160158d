"""Scores of class probabilities: how often right, and how honest about it.

Every function takes what `predict_distribution` returns, with the labels as they are, or probabilities
``(n, classes)``, rows summing to 1, with the columns of the classes that came true, ``0 … classes − 1``. Two classes
are two columns. Accuracy and AUROC: larger is better; the others: smaller.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gdkl.numerics import DataError, OptionError
from gdkl.predictive import ClassPredictive, FloatArray, class_index

IntArray: TypeAlias = NDArray[np.int64]

#: A prediction, or its probabilities alone.
Probabilities: TypeAlias = ArrayLike | ClassPredictive

#: Bins of confidence, as the paper counts them.
N_BINS = 15

#: How far a row of probabilities may be from summing to 1: float32 sums of a thousand classes stay well inside.
_SUM_TOLERANCE = 1e-3

#: The largest confidence handed to torchmetrics, which rounds to float32 and gives 1 a bin of its own.
_BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))


class OodScore(StrEnum):
    """By which score out-of-distribution rows or images are detected."""

    ENTROPY = "entropy"
    """Entropy of the class probabilities."""
    VARIANCE = "variance"
    """Variance of the latent functions, averaged over classes."""


class CalibrationBins(NamedTuple):
    """Predictions by confidence: one entry per bin of width 1 / bins, empty bins as NaN.

    Attributes:
        edges: Ends of the bins, ``(bins + 1,)``.
        counts: Predictions in each, ``(bins,)``.
        confidence: Their mean confidence, ``(bins,)``.
        accuracy: Share of them that came true, ``(bins,)``.
    """

    edges: FloatArray
    counts: IntArray
    confidence: FloatArray
    accuracy: FloatArray


def accuracy(probs: Probabilities, labels: ArrayLike) -> float:
    """Share of rows whose most probable class came true.

    Example:
        >>> accuracy([[0.9, 0.1], [0.6, 0.4]], [0, 1])
        0.5
    """
    p, y = check_classification(probs, labels)
    return float(np.mean(p.argmax(axis=1) == y))


def nll(probs: Probabilities, labels: ArrayLike) -> float:
    """Mean negative log probability of the classes that came true; infinite if one of them had none.

    Example:
        >>> round(nll([[0.9, 0.1], [0.5, 0.5]], [0, 1]), 4)
        0.3993
    """
    p, y = check_classification(probs, labels)
    with np.errstate(divide="ignore"):
        return float(-np.log(p[np.arange(len(y)), y]).mean())


def brier(probs: Probabilities, labels: ArrayLike) -> float:
    """Mean squared distance from the probabilities to the truth, summed over classes: between 0 and 2.

    Example:
        >>> round(brier([[0.9, 0.1], [0.5, 0.5]], [0, 1]), 4)
        0.26
    """
    p, y = check_classification(probs, labels)
    return float(np.square(p - np.eye(p.shape[1])[y]).sum(axis=1).mean())


def ece(probs: Probabilities, labels: ArrayLike, n_bins: int = N_BINS) -> float:
    """Expected calibration error: mean distance of confidence and accuracy over bins, weighted by their counts.

    Example:
        >>> round(ece([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 4)
        0.4
    """
    return _calibration_error(probs, labels, n_bins, "l1")


def mce(probs: Probabilities, labels: ArrayLike, n_bins: int = N_BINS) -> float:
    """Maximum calibration error: the largest distance of confidence and accuracy in any bin that is not empty.

    Example:
        >>> round(mce([[0.9, 0.1], [0.6, 0.4]], [0, 1]), 4)
        0.6
    """
    return _calibration_error(probs, labels, n_bins, "max")


def calibration_bins(probs: Probabilities, labels: ArrayLike, n_bins: int = N_BINS) -> CalibrationBins:
    """Count predictions, and their mean confidence and accuracy, by confidence.

    A bin holds its lower end; the last holds both.

    Example:
        >>> calibration_bins([[0.9, 0.1], [0.6, 0.4]], [0, 1], n_bins=2).counts
        array([0, 2])
    """
    p, y = check_classification(probs, labels, n_bins)
    top, right = p.max(axis=1), (p.argmax(axis=1) == y).astype(np.float64)
    edges = np.linspace(0.0, 1.0, n_bins + 1)
    place = np.clip(np.digitize(top, edges) - 1, 0, n_bins - 1)
    counts = np.bincount(place, minlength=n_bins)
    with np.errstate(invalid="ignore"):
        confidence, share = (np.bincount(place, value, n_bins) / counts for value in (top, right))
    return CalibrationBins(edges, counts.astype(np.int64), confidence, share)


def entropy(probs: Probabilities) -> FloatArray:
    """Entropy of each row of probabilities, in nats.

    Example:
        >>> entropy([[0.5, 0.5], [1.0, 0.0]]).round(4).tolist()
        [0.6931, 0.0]
    """
    p = _check_probs(probs)
    # 0 · log 0 is 0, and the absolute value takes the sign off a zero.
    return np.abs(np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0).sum(axis=1))


def ood_auroc(inside: Probabilities, outside: Probabilities, by: OodScore | str = OodScore.ENTROPY) -> float:
    """AUROC of entropy or variance for out-of-distribution detection; 0.5 is chance.

    Args:
        inside: For in-distribution rows: a prediction, or its class probabilities ``(n, classes)`` for "entropy", or
            its latent variances ``(n,)`` or ``(n, classes)`` for "variance".
        outside: The same for out-of-distribution rows.
        by: "entropy" or "variance".

    Example:
        >>> ood_auroc([[0.9, 0.1], [0.8, 0.2]], [[0.5, 0.5]])
        1.0
        >>> ood_auroc([0.1, 0.3], [0.2, 0.4], by="variance")
        0.75
    """
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415  (slow to import)

    if by not in tuple(OodScore):
        raise OptionError(f"by={by!r} is not known: use {' or '.join(repr(str(score)) for score in OodScore)}.")
    uncertainty = entropy if by == OodScore.ENTROPY else _mean_variance
    known, other = uncertainty(inside), uncertainty(outside)
    truth = np.repeat([0, 1], [len(known), len(other)])
    return float(roc_auc_score(truth, np.concatenate([known, other])))


def class_summary(probs: Probabilities, labels: ArrayLike, n_bins: int = N_BINS) -> dict[str, float]:
    """All scores of class probabilities at once, by name.

    Example:
        >>> sorted(class_summary([[0.9, 0.1], [0.6, 0.4]], [0, 1]))
        ['accuracy', 'brier', 'ece', 'mce', 'nll']
        >>> p = ClassPredictive(np.log([[0.9, 0.1]]), ["no", "yes"], np.zeros((1, 2)), np.ones((1, 2)))
        >>> class_summary(p, ["no"])["accuracy"]
        1.0
    """
    return {
        "accuracy": accuracy(probs, labels),
        "nll": nll(probs, labels),
        "brier": brier(probs, labels),
        "ece": ece(probs, labels, n_bins),
        "mce": mce(probs, labels, n_bins),
    }


def check_classification(probs: Probabilities, labels: ArrayLike, n_bins: int = N_BINS) -> tuple[FloatArray, IntArray]:
    """Probabilities and labels as arrays that fit each other; an error says what to change if they do not."""
    if n_bins < 1:
        raise OptionError(f"n_bins={n_bins!r} must be at least 1.")
    p = _check_probs(probs)
    y = np.asarray(labels)
    if isinstance(probs, ClassPredictive):
        y = class_index(probs.classes, y)
    if y.shape != (len(p),):
        raise DataError(f"labels must be one per row of probs, shape ({len(p)},); got {y.shape}.")
    if y.dtype.kind not in "biu":
        raise DataError(f"labels must be whole numbers, the columns of probs; got {y.dtype}: encode the classes first.")
    y = y.astype(np.int64)
    outside = y[(y < 0) | (y >= p.shape[1])]
    if outside.size:
        raise DataError(f"labels must lie in 0 … {p.shape[1] - 1}, the columns of probs; got {outside[0]}.")
    return p, y


def _check_probs(probs: Probabilities) -> FloatArray:
    if isinstance(probs, ClassPredictive):
        probs = probs.probs
    try:
        p = np.asarray(probs, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"probs must be an array of numbers: {error}") from error
    if p.ndim == 1:
        raise DataError("probs must have a column per class: for two classes pass np.column_stack([1 - p, p]).")
    if p.ndim != 2 or p.shape[1] < 2:
        raise DataError(f"probs must have shape (n, classes) with two classes or more; got {p.shape}.")
    if len(p) == 0:
        raise DataError("probs has no rows: there is nothing to score.")
    if not bool(np.isfinite(p).all()):
        raise DataError("probs has NaN or infinite values.")
    sums = p.sum(axis=1)
    worst = float(sums[np.abs(sums - 1).argmax()])
    if p.min() < -_SUM_TOLERANCE or abs(worst - 1) > _SUM_TOLERANCE:
        found = f"the smallest entry is {p.min():.4g} and a row sums to {worst:.4g}"
        raise DataError(f"probs must be probabilities, rows that sum to 1; {found}. Logits go through a softmax first.")
    return p.clip(0.0, 1.0)


def _calibration_error(probs: Probabilities, labels: ArrayLike, n_bins: int, norm: Literal["l1", "max"]) -> float:
    import torch  # noqa: PLC0415
    from torchmetrics.functional import classification  # noqa: PLC0415  (seconds of imports that no other score needs)

    p, y = check_classification(probs, labels, n_bins)
    below_one, target = torch.from_numpy(p.clip(max=_BELOW_ONE)), torch.from_numpy(y)
    return float(classification.multiclass_calibration_error(below_one, target, p.shape[1], n_bins, norm))


def _mean_variance(variances: Probabilities) -> FloatArray:
    if isinstance(variances, ClassPredictive):
        variances = variances.latent_variance
    values = np.asarray(variances, dtype=np.float64)
    if values.ndim not in (1, 2) or values.size == 0:
        raise DataError(f"latent variances must have shape (n,) or (n, classes) with rows in them; got {values.shape}.")
    if not bool(np.isfinite(values).all()) or values.min() < 0:
        raise DataError("latent variances must be finite and not negative.")
    return cast(FloatArray, values if values.ndim == 1 else values.mean(axis=1))
