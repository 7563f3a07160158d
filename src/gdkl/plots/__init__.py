"""Pictures of predictions, training and calibration.

Every function draws on a panel that it is passed, or makes a figure of its own; none touches matplotlib's global
state, so all of them work without a display: ``ax.figure.savefig("picture.png")``.
"""

from gdkl.plots.bands import bands_figure, predictive_band
from gdkl.plots.columns import relevance
from gdkl.plots.differences import difference_figure
from gdkl.plots.observed import observed_against_predicted
from gdkl.plots.reliability import (
    calibration,
    confidence_histogram,
    coverage_curve,
    reliability_bars,
    reliability_diagram,
    reliability_figure,
)
from gdkl.plots.scores import learning_curves, score_dots
from gdkl.plots.style import METHOD_COLORS, color_cycle, new_figure
from gdkl.plots.toy import DOMAIN, GAP, NOISE_VARIANCE, ToyExample, in_region, label_informed, toy_example, toy_figure
from gdkl.plots.training import history

__all__ = [
    "DOMAIN",
    "GAP",
    "METHOD_COLORS",
    "NOISE_VARIANCE",
    "ToyExample",
    "bands_figure",
    "calibration",
    "color_cycle",
    "confidence_histogram",
    "coverage_curve",
    "difference_figure",
    "history",
    "in_region",
    "label_informed",
    "learning_curves",
    "new_figure",
    "observed_against_predicted",
    "predictive_band",
    "relevance",
    "reliability_bars",
    "reliability_diagram",
    "reliability_figure",
    "score_dots",
    "toy_example",
    "toy_figure",
]
