"""Are the held-out rows like those of the training?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gdkl.estimators.diagnostics.evidence import Evidence
from gdkl.estimators.diagnostics.finding import Finding, Severity
from gdkl.inputs import FloatArray

#: A row is far if fewer than this part of the training rows are as far from all others.
FAR = 0.05

#: Three times as many far rows as there should be, and most of them, and the probability of chance.
_MANY, _MOST, _CHANCE = 3 * FAR, 0.5, 1e-3

#: A row stands in the training rows if it is nearer to one of them than this part of their median distance.
_SAME = 1e-6

#: Part of held-out rows that stand in the training rows beyond what these do among themselves.
_COPIES = 0.05

#: A column has moved if its mean has by half a training standard deviation, and by so many standard errors, of which
#: by chance none of a hundred columns has as many in a hundred trials.
_MOVED, _MOVED_ERRORS = 0.5, 4.9


def check_shift(e: Evidence) -> Iterator[Finding]:
    """Whether more held-out rows than should be are far from the training rows, and which columns have moved."""
    distances = nearest_distances(e)
    yield _check_far(distances)
    if distances is not None:
        yield _check_copies(*distances)
    if e.estimator.kind_.input.image_shape is None:
        yield _check_columns(e)


def _check_copies(training: FloatArray, new: FloatArray) -> Finding:
    """Whether the rows are those of the training after all."""
    least = _SAME * float(np.median(training[training > 0])) if (training > 0).any() else 0.0
    usual, share = float((training <= least).mean()), float((new <= least).mean())
    text = (
        f"{100 * share:.0f} % of the held-out rows stand in the training rows too, and {100 * usual:.0f} % of these "
        "twice."
    )
    if share <= 2 * usual + _COPIES:
        return Finding("copies", Severity.FINE, text, share, high=2 * usual + _COPIES)
    text += " What is found on them flatters the model."
    remedy = "Judge on rows that fit has not seen; where rows come in groups, hold out whole groups."
    return Finding("copies", Severity.WARNING, text, share, high=2 * usual + _COPIES, remedy=remedy)


def _check_far(distances: tuple[FloatArray, FloatArray] | None) -> Finding:
    if distances is None:
        text = "How far rows are from the training rows is not known: pass train=(X, y)."
        return Finding("shift", Severity.UNKNOWN, text)
    share, chance = far_share(*distances)
    text = (
        f"{100 * share:.0f} % of the held-out rows are farther from the nearest training row than "
        f"{100 * (1 - FAR):.0f} % of these are from each other."
    )
    if share <= _MANY or chance > _CHANCE:
        return Finding("shift", Severity.FINE, text, share, high=_MANY)
    remedy = (
        "Predictions there lean on the prior: read their intervals, not their means. Fit to rows like these, or "
        "refuse rows that are far (latent_variance of predict_distribution)."
    )
    severity = Severity.PROBLEM if share > _MOST else Severity.WARNING
    return Finding("shift", severity, text, share, high=_MANY, remedy=remedy)


def far_share(training: FloatArray, new: FloatArray) -> tuple[float, float]:
    """The part of new rows that are farther than all but `FAR` of the training rows, and its p-value.

    If all rows are drawn alike, the number of m new ones beyond the r-th largest of n has a beta-binomial distribution.
    """
    from scipy.stats import betabinom  # noqa: PLC0415  (slow to import)

    n, m = len(training), len(new)
    r = max(1, round(FAR * n))
    count = int((new > np.sort(training)[-r]).sum())
    return count / m, float(betabinom.sf(count - 1, m, r, n - r + 1))


def nearest_distances(e: Evidence) -> tuple[FloatArray, FloatArray] | None:
    """Of each training row to the nearest other, and of each held-out row; columns are multiplied by relevances."""
    from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415  (slow to import)

    if e.training is None or e.training.rows is None:
        return None
    scale = column_relevance(e)
    search = NearestNeighbors(n_neighbors=2).fit(e.training.rows * scale)
    own, _ = search.kneighbors(e.training.rows * scale)
    new, _ = search.kneighbors(e.rows * scale, n_neighbors=1)
    return own[:, 1], new[:, 0]


def column_relevance(e: Evidence) -> FloatArray:
    """The relevance of each scaled column; ones where the model has none."""
    relevance = getattr(e.estimator, "relevance_", None)
    if relevance is None:
        return np.ones(e.rows.shape[1])
    return np.asarray(relevance, dtype=np.float64).reshape(-1)[e.estimator.kind_.input.groups]


def _check_columns(e: Evidence) -> Finding:
    table = e.estimator.kind_.input
    n = np.inf if e.training is None else len(e.training)
    moved = np.abs(e.rows.mean(axis=0))
    # Scaled training columns have mean 0 and variance 1; indicators of a category less.
    spread = e.rows.std(axis=0)
    errors = np.sqrt(np.maximum(spread, 1.0) ** 2 * (1 / len(e) + 1 / n))
    worst = dict[str, float]()
    for column in np.argsort(-moved):
        if moved[column] > _MOVED and moved[column] > _MOVED_ERRORS * errors[column]:
            worst.setdefault(str(table.names[table.groups[column]]), float(e.rows.mean(axis=0)[column]))
    largest = float(moved.max())
    if not worst:
        text = f"The means of columns are within {largest:.1f} training standard deviations of those of fit."
        return Finding("columns", Severity.FINE, text, largest, high=_MOVED)
    named = ", ".join(f"{name} ({value:+.1f})" for name, value in list(worst.items())[:5])
    more = f" and {len(worst) - 5} more" if len(worst) > 5 else ""
    text = f"Means have moved since fit, in training standard deviations: {named}{more}."
    remedy = "If new rows will be like these, fit to rows like these; else hold out rows at random."
    return Finding("columns", Severity.WARNING, text, largest, high=_MOVED, remedy=remedy)
