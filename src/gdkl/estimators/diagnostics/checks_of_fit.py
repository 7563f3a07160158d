"""Does the model know anything, was it fitted to too few rows, and does it expect of itself more than it keeps?"""

from __future__ import annotations

import numpy as np
import torch

from gdkl.estimators.diagnostics.evidence import Evidence
from gdkl.estimators.diagnostics.finding import Finding, Severity
from gdkl.inputs import FloatArray, TargetScaler
from gdkl.predictive import ClassPredictive, Predictive
from gdkl.training import FittedNetwork

#: Probability by which a difference that counts is one of chance.
_CHANCE = 0.001

#: A log-likelihood that is lower by this is what errors a quarter, and 70 % larger than expected cost: (r² − 1) / 2.
_GAP, _LARGE_GAP = 0.28, 0.95

#: So many more nats per row from twice the rows are worth saying.
_GAIN = 0.1

#: Held-out rows that are predicted anew at most: enough for differences of 0.1 nats.
_JUDGED = 500

#: Held-out rows of which the expected log-likelihood is simulated at most.
_EXPECTED = 2000

#: Fewer held-out rows than this leave the coverage of 90 % intervals open by more than ±10 %.
FEWEST_ROWS = 35


def mean_and_error(values: FloatArray) -> tuple[float, float]:
    """Mean over rows and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.inf


def counts(mean: float, error: float, rows: int, chance: float = _CHANCE) -> bool:
    """Whether a mean over so many rows is above zero by more than chance explains, by Student's t distribution."""
    from scipy.stats import t  # noqa: PLC0415  (slow to import)

    return rows > 1 and mean > error * float(t.isf(chance, rows - 1))


def constant_prediction(e: Evidence) -> Predictive | ClassPredictive | None:
    """What can be said of each row without a look at its columns: the training targets' Gaussian, or their classes."""
    m = len(e)
    if isinstance(e.p, ClassPredictive):
        if e.training is None:
            return None
        classes = e.p.classes
        # One row of each class more, so that none is impossible.
        counts = np.array([1 + int((e.training.targets == label).sum()) for label in classes])
        zeros = np.zeros((m, len(classes)))
        return ClassPredictive(np.tile(np.log(counts / counts.sum()), (m, 1)), classes, zeros, zeros)
    target: TargetScaler = e.estimator.target_
    k = e.output or 0
    mean, variance = np.full((1, m), target.mean[k]), np.full((1, m), target.std[k] ** 2)
    return Predictive(mean, variance, np.zeros_like(mean), warps=[target.warps[k]])


def check_skill(e: Evidence) -> Finding:
    """Whether predictions are better than the mean of the targets."""
    constant = constant_prediction(e)
    known = "the classes' frequencies" if e.is_classes else "the mean and the spread of the targets"
    if constant is None:
        return Finding("skill", Severity.UNKNOWN, "The training labels are not known: pass train=(X, y).")
    gain, error = mean_and_error(e.log_prob - constant.log_prob(e.y))
    text = (
        f"Log-likelihood per row {gain:+.2f} ± {error:.2f} against {known} alone. {_without_probabilities(e, constant)}"
    )
    if counts(gain, error, len(e), chance=0.025):
        return Finding("skill", Severity.FINE, text, gain, low=0.0)
    if counts(-gain, error, len(e), chance=0.025):
        text += " Its probabilities are worse than knowing nothing."
        remedy = "See 'calibration', 'outliers' and 'overfitting': the model is sure of what is wrong."
        return Finding("skill", Severity.PROBLEM, text, gain, low=0.0, remedy=remedy)
    text += " Its probabilities are no better than knowing nothing."
    severity = Severity.WARNING if len(e) >= FEWEST_ROWS else Severity.NOTE
    remedy = "See 'outliers' and 'calibration'; if they are fine, the columns tell little, or the rows are too few."
    return Finding("skill", severity, text, gain, low=0.0, remedy=remedy)


def _without_probabilities(e: Evidence, constant: Predictive | ClassPredictive) -> str:
    """How good the means are, or the most probable classes."""
    if isinstance(e.p, ClassPredictive) and isinstance(constant, ClassPredictive):
        right, usual = (100 * float((p.mode == e.y).mean()) for p in (e.p, constant))
        return f"Accuracy {right:.0f} %, and {usual:.0f} % with the most frequent class."
    if isinstance(e.p, Predictive) and isinstance(constant, Predictive):
        part = 1 - float(((e.p.mean - e.y) ** 2).mean() / ((constant.mean - e.y) ** 2).mean())
        return f"Means explain {100 * part:.0f} % of the variance."
    return ""


def check_overfitting(e: Evidence) -> Finding:
    """Whether held-out rows are less probable than the training rows let expect."""
    training = e.training
    if training is None or training.predicted is None:
        why = "pass train=(X, y)" if training is None or training.rows is None else "rows had weights in fit"
        text = f"What the model predicts of its training rows cannot be told: {why}."
        return Finding("overfitting", Severity.UNKNOWN, text)
    own = training.predicted.log_prob(training.targets)
    (expected, error), (found, own_error) = mean_and_error(own), mean_and_error(e.log_prob)
    gap, error = expected - found, float(np.hypot(error, own_error))
    how = "each left out of what predicts it" if training.left_out else "as it was fitted to them"
    text = (
        f"Log-likelihood {found:.2f} of held-out rows, {expected:.2f} of the training rows ({how}): a difference of "
        f"{gap:.2f} ± {error:.2f}."
    )
    if gap < _GAP or not counts(gap, error, min(len(e), len(training))):
        return Finding("overfitting", Severity.FINE, text, gap, high=_GAP)
    missing, own_error = mean_and_error(e.some(_EXPECTED).shortfall)
    if not counts(missing, own_error, min(len(e), _EXPECTED)):
        text += " Predictions of new rows are as good as they claim to be all the same."
        return Finding("overfitting", Severity.NOTE, text, gap, high=_GAP)
    text += f" New rows are less probable than the model thinks, by {missing:.2f} ± {own_error:.2f} per row."
    severity = Severity.PROBLEM if gap > _LARGE_GAP else Severity.WARNING
    return Finding("overfitting", severity, text, gap, high=_GAP, remedy=_remedy_of_overfitting(e))


def _remedy_of_overfitting(e: Evidence) -> str:
    kind = "Classifier" if e.is_classes else "Regressor"
    if type(e.estimator).__name__.startswith(("DKL", "DUE", "DLVKL", "NN")) and not type(
        e.estimator
    ).__name__.startswith("NNGP"):
        return f"Use GDKL{kind}, whose guide keeps the features from fitting single rows; or fewer steps (n_iter)."
    return (
        "Look for copies of rows, or groups of them (one patient, one machine), that stand in the training rows only; "
        f"compare NNGP{kind}; see 'shift' for rows of another kind."
    )


def check_rows(e: Evidence) -> Finding:
    """Whether there are rows enough to judge, and to learn from."""
    if len(e) < FEWEST_ROWS:
        half = 1.96 * np.sqrt(0.09 / len(e))
        text = (
            f"{len(e)} held-out rows show the coverage of 90 % intervals to within ±{100 * half:.0f} % only: nothing "
            "here is proved."
        )
        remedy = "Hold out more rows, or repeat with several splits (cross-validation)."
        return Finding("rows", Severity.WARNING, text, len(e), low=FEWEST_ROWS, remedy=remedy)
    curve = learning_curve(e, parts=(0.5,))
    if curve is None:
        return Finding("rows", Severity.FINE, f"{len(e)} held-out rows.", len(e), low=FEWEST_ROWS)
    (count, fewer), (n, all_of_them) = curve
    gain, error = mean_and_error(all_of_them - fewer)
    text = f"{n} training rows: log-likelihood per row {gain:+.2f} ± {error:.2f} against {count} of them."
    if gain > _GAIN and counts(gain, error, min(len(e), _JUDGED)):
        text += " It has not levelled off."
        return Finding("rows", Severity.NOTE, text, gain, high=_GAIN, remedy="More rows would make it better.")
    return Finding("rows", Severity.FINE, text, gain, high=_GAIN)


def learning_curve(e: Evidence, parts: tuple[float, ...], seed: int = 0) -> list[tuple[int, FloatArray]] | None:
    """Log-likelihoods of the held-out rows where the model knows a part of its training rows, and where it knows all.

    Hyperparameters and features stay as all rows have chosen them, so that nothing is trained: fewer rows would do
    worse than the curve says. None where the model does not hold its training rows.
    """
    stack = e.estimator.stack_
    if isinstance(e.estimator.model_, FittedNetwork) or not stack.is_exact or e.training is None:
        return None
    e, n = e.some(_JUDGED), len(e.training)
    order = torch.as_tensor(np.random.default_rng(seed).permutation(n))
    curve: list[tuple[int, FloatArray]] = []
    for part in parts:
        count = max(4, round(part * n))
        curve.append((count, e.with_stack(stack.take(order[:count])).log_prob))
    return [*curve, (n, e.log_prob)]


def check_guides(e: Evidence) -> Finding | None:
    """Whether the weights of guides and student suit the held-out rows; None for a model without both."""
    if not e.guides:
        return None
    e, names, k = e.some(_JUDGED), list(e.estimator.stack_.models), e.output or 0
    share = float(e.estimator.stack_.weights[:-1, min(k, e.estimator.stack_.weights.shape[1] - 1)].sum())
    scores = {who: e.by_models(those).log_prob for who, those in (("guides", e.guides), ("student", names[-1:]))}
    lead, error = mean_and_error(scores["student"] - scores["guides"])
    text = (
        f"Log-likelihood per row: mixture {e.log_prob.mean():.2f}, guides alone {scores['guides'].mean():.2f}, student "
        f"alone {scores['student'].mean():.2f}; the guides have {100 * share:.0f} % of the weight."
    )
    better = "student" if lead > 0 else "guides"
    loss, loss_error = mean_and_error(scores[better] - e.log_prob)
    if loss > _GAIN and counts(loss, loss_error, len(e)):
        remedy = (
            f"Held-out rows want the {better} alone: fit with guide_share={0 if better == 'student' else 1}, and judge "
            "it on other rows than these."
        )
        return Finding("guide and student", Severity.WARNING, text, loss, high=_GAIN, remedy=remedy)
    sure = counts(abs(lead), error, len(e))
    text += f" The {better} {'is' if better == 'student' else 'are'} better{'' if sure else ', within chance'}."
    return Finding("guide and student", Severity.FINE, text, loss, high=_GAIN)
