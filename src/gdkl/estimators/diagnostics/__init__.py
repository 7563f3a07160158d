"""What speaks against a fitted model: checks on held-out rows, each of which gives findings in words."""

from gdkl.estimators.diagnostics.checks_of_fit import learning_curve
from gdkl.estimators.diagnostics.checks_of_rows import column_relevance, nearest_distances
from gdkl.estimators.diagnostics.diagnose import diagnose, findings
from gdkl.estimators.diagnostics.evidence import Evidence, gather
from gdkl.estimators.diagnostics.finding import Diagnosis, Finding, Severity

__all__ = [
    "Diagnosis",
    "Evidence",
    "Finding",
    "Severity",
    "column_relevance",
    "diagnose",
    "findings",
    "gather",
    "learning_curve",
    "nearest_distances",
]
