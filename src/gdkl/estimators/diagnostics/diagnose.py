"""All checks, one after the other."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gdkl.estimators.diagnostics.checks_of_calibration import (
    check_intervals,
    check_probabilities,
    check_surprises,
    check_tails,
)
from gdkl.estimators.diagnostics.checks_of_features import check_far_rows, check_features
from gdkl.estimators.diagnostics.checks_of_fit import check_guides, check_overfitting, check_rows, check_skill
from gdkl.estimators.diagnostics.checks_of_rows import check_shift
from gdkl.estimators.diagnostics.evidence import Evidence, gather
from gdkl.estimators.diagnostics.finding import Diagnosis, Finding
from gdkl.numerics import DataWarning
from gdkl.predictive import Predictive


def diagnose(estimator: Any, X: Any, y: Any, train: tuple[Any, Any] | None = None) -> Diagnosis:
    """Findings about an estimator on held-out rows; see its method of this name."""
    return findings(gather(estimator, X, y, train))


def findings(e: Evidence) -> Diagnosis:
    """Findings from what is known; those of one of several targets name it."""
    found: list[Finding] = []
    with warnings.catch_warnings():
        # Cells of the held-out rows have been warned of once, where they were read first.
        warnings.simplefilter("ignore", DataWarning)
        several = e.outputs()
        for one in several:
            where = "" if one.output is None else f"Target {one.output}: "
            found += [replace(finding, text=where + finding.text) for finding in _of_target(one)]
        found += _of_rows(e)
    return Diagnosis(tuple(found), len(e))


def _of_target(e: Evidence) -> Iterator[Finding]:
    """What concerns one target."""
    yield check_skill(e)
    yield check_overfitting(e)
    if isinstance(e.p, Predictive):
        yield from check_intervals(e, e.p)
        yield check_surprises(e, e.p)
    else:
        yield check_probabilities(e, e.p)
    checks = (None if e.is_classes else check_tails(e), check_guides(e))
    yield from (finding for finding in checks if finding is not None)


def _of_rows(e: Evidence) -> Iterator[Finding]:
    """What concerns rows and columns, whatever the target."""
    yield check_rows(e)
    yield from check_shift(e)
    yield from (finding for finding in (check_features(e), check_far_rows(e)) if finding is not None)
