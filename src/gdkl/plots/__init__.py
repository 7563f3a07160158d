"""Pictures of predictions, training and calibration.

Every function draws on a panel that it is passed, or makes a figure of its own; none touches matplotlib's global
state, so all of them work without a display: ``ax.figure.savefig("picture.png")``.
"""

from gdkl.plots.bands import bands_figure, predictive_band
from gdkl.plots.columns import relevance
from gdkl.plots.differences import difference_figure
from gdkl.plots.groups import group_bars
from gdkl.plots.observed import observed_against_predicted
from gdkl.plots.reliability import (
    calibration,
    confidence_histogram,
    coverage_curve,
    reliability_diagram,
    reliability_figure,
)
from gdkl.plots.rows import far_rows, function_share, rejection_curve, sorted_intervals
from gdkl.plots.style import METHOD_COLORS, PAPER_COLORS, color_cycle, new_figure
from gdkl.plots.toy import DOMAIN, GAP, NOISE_VARIANCE, ToyExample, in_region, label_informed, toy_example, toy_figure
from gdkl.plots.training import history, learning_curve
from gdkl.plots.uniformity import pit_histogram, quantile_calibration

__all__ = [
    "DOMAIN",
    "GAP",
    "METHOD_COLORS",
    "NOISE_VARIANCE",
    "PAPER_COLORS",
    "ToyExample",
    "bands_figure",
    "calibration",
    "color_cycle",
    "confidence_histogram",
    "coverage_curve",
    "difference_figure",
    "far_rows",
    "function_share",
    "group_bars",
    "history",
    "in_region",
    "label_informed",
    "learning_curve",
    "new_figure",
    "observed_against_predicted",
    "pit_histogram",
    "predictive_band",
    "quantile_calibration",
    "rejection_curve",
    "relevance",
    "reliability_diagram",
    "reliability_figure",
    "sorted_intervals",
    "toy_example",
    "toy_figure",
]
