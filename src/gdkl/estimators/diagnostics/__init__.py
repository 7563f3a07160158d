"""What speaks against a fitted model: checks on held-out rows, each of which gives findings in words."""

from gdkl.estimators.diagnostics.checks_of_fit import constant_prediction, counts, learning_curve, mean_and_error
from gdkl.estimators.diagnostics.checks_of_rows import FAR, nearest_distances
from gdkl.estimators.diagnostics.diagnose import diagnose, findings
from gdkl.estimators.diagnostics.evidence import Evidence, gather
from gdkl.estimators.diagnostics.finding import Diagnosis, Finding, Severity

__all__ = [
    "FAR",
    "Diagnosis",
    "Evidence",
    "Finding",
    "Severity",
    "constant_prediction",
    "counts",
    "diagnose",
    "findings",
    "gather",
    "learning_curve",
    "mean_and_error",
    "nearest_distances",
]
