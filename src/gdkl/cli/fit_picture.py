"""The picture of a fit: held-out rows against their predictions, calibration, and which columns matter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gdkl import plots
from gdkl.predictive import ClassPredictive

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def fit_figure(estimator: Any, prediction: Any, truth: Any, target: str) -> Figure | None:
    """Draw a fit; None where there are neither held-out rows nor relevances.

    Args:
        estimator: The fitted estimator.
        prediction: Of held-out rows, by a model that has not learned from them; None if there are none.
        truth: What came true there.
        target: Name of the target.
    """
    relevance = getattr(estimator, "relevance_", None)
    count = 2 * (prediction is not None) + (relevance is not None)
    if not count:
        return None
    figure = plots.new_figure(4.6 * count, 4.4)
    panels = list(figure.subplots(1, count, squeeze=False).ravel())
    if isinstance(prediction, ClassPredictive):
        title = f"{target!r}: {len(truth)} held-out rows"
        plots.reliability_diagram(prediction, truth, n_bins=10, title=title, ax=panels.pop(0))
        plots.confidence_histogram(prediction, truth, n_bins=10, title="how sure it is", ax=panels.pop(0))
    elif prediction is not None:
        title = f"{target!r}: {len(truth)} held-out rows"
        plots.observed_against_predicted(prediction, truth, title=title, ax=panels.pop(0))
        name = type(estimator).__name__
        plots.calibration({name: prediction}, truth, title="calibration", ax=panels.pop(0))
    if relevance is not None:
        plots.relevance(relevance, most=15, title="relevance of the columns", ax=panels.pop(0))
    return figure
