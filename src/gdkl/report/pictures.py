"""The pictures of a report, each with a caption that says how to read it."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from gdkl import plots
from gdkl.estimators.diagnostics import FAR, Evidence, learning_curve, mean_and_error, nearest_distances
from gdkl.predictive import ClassPredictive, FloatArray, Predictive
from gdkl.report.columns import Group, column_groups, outcome_of, width_groups
from gdkl.report.page import Section, figure
from gdkl.report.sections import farthest

#: Groups of rows that are drawn, and rows where each is a point.
_MOST_GROUPS, _MOST_POINTS = 12, 300

#: Parts of the training rows in a learning curve.
_PARTS = (0.125, 0.25, 0.5)


class Gallery:
    """Pictures of one target; their names are its own.

    Args:
        e: Of one target.
        title: Added to the headings; empty for a single target.
    """

    def __init__(self, e: Evidence, title: str = ""):
        self.e = e
        self._title = title
        self._suffix = "" if e.output is None else f"-{e.output}"
        self._drawn = 0

    def _figure(self, ax: Axes, title: str, caption: str) -> str:
        self._drawn += 1
        return figure(ax, title, caption, f"picture{self._suffix}-{self._drawn}")

    def _section(self, anchor: str, title: str, parts: list[str], after: str = "") -> Section:
        return Section(
            f"{anchor}{self._suffix}", f"{title}{self._title}", f'<div class="grid">{"".join(parts)}</div>{after}'
        )

    def calibration(self) -> Section:
        """Whether probabilities keep what they promise, on the whole and by groups of rows."""
        p, y = self.e.p, self.e.y
        if isinstance(p, ClassPredictive):
            parts = [
                self._figure(
                    plots.reliability_diagram(p, y, ax=_panel(3.6)),
                    "Accuracy by confidence",
                    "Bars that end below the diagonal belong to predictions that are too sure. Bars of a few rows vary "
                    "a lot; the histogram says how many there are.",
                ),
                self._figure(
                    plots.confidence_histogram(p, y, ax=_panel(2.6)),
                    "How confident predictions are",
                    "The full line is the accuracy, the dotted one the mean confidence: where they meet, probabilities "
                    "are right on the whole.",
                ),
            ]
        else:
            parts = [
                self._figure(
                    plots.pit_histogram(p, y),
                    "Quantiles at which targets lie",
                    "Flat if the model is right. High ends: intervals too narrow; a hill: too wide; a slope: "
                    "predictions too low (up) or too high (down). The band is what chance allows in 95 of 100 cases.",
                ),
                self._figure(
                    plots.quantile_calibration(p, y),
                    "Targets below each predicted quantile",
                    "On the diagonal within the band, if the model is right.",
                ),
                self._figure(
                    plots.calibration({type(self.e.estimator).__name__: p}, y, ax=_panel(3.6)),
                    "Coverage of central intervals",
                    "Below the diagonal intervals hold fewer targets than they promise.",
                ),
            ]
        parts += self._groups()
        return self._section("calibration", "Are its probabilities right?", parts)

    def _groups(self) -> list[str]:
        what = "accuracy" if self.e.is_classes else "coverage of 90 % intervals"
        parts: list[str] = []
        if tenths := width_groups(self.e):
            parts.append(
                self._figure(
                    _bars(tenths, what, 0.9),
                    "Coverage by width of the interval",
                    "Rows in the order of how wide their intervals are, in groups of equal size.",
                )
            )
        if self.e.estimator.kind_.input.image_shape is None and (groups := column_groups(self.e)):
            beyond, by_chance = sum(group.beyond for group in groups), len(groups) / 20
            parts.append(
                self._figure(
                    _bars(groups[:_MOST_GROUPS], what, None if self.e.is_classes else 0.9),
                    f"{what.capitalize()} by column",
                    f"The groups of rows that depart most from what is expected. {beyond} of {len(groups)} groups lie "
                    f"beyond their bands; about {by_chance:.0f} would by chance.",
                )
            )
        return parts

    def rows(self) -> Section:
        """Single rows: intervals, what refusing uncertain ones gains, noise, and rows far from the training data."""
        e, p = self.e, self.e.p
        parts: list[str] = []
        if isinstance(p, Predictive):
            parts.append(
                self._figure(
                    plots.sorted_intervals(p, e.y),
                    "Intervals and targets",
                    "A tenth of the targets should lie outside their 90 % interval, anywhere.",
                )
            )
            curve = plots.rejection_curve(p.std, (p.mean - e.y) ** 2, root=True, ylabel="RMSE of the rows kept")
        else:
            wrong = 1 - outcome_of(e).right
            curve = plots.rejection_curve(p.entropy, wrong, ylabel="error rate of the rows kept")
        words = "If the most uncertain rows are left to somebody else, the others should be predicted better."
        parts.append(self._figure(curve, "What refusing rows gains", words))
        if isinstance(p, Predictive):
            parts.append(
                self._figure(
                    plots.function_share(p),
                    "Noise, or not enough rows",
                    "The part of each prediction's variance that more rows would reduce. Near 0 all is noise.",
                )
            )
        after = ""
        if (found := nearest_distances(e)) is not None:
            own, new = found
            usual = float(np.quantile(own, 1 - FAR)) or 1.0
            parts.append(self._far(new, usual))
            after = f"<h3>The rows farthest from the training data</h3>{farthest(e, new, usual)}"
        else:
            after = '<p class="soft">How far rows are from the training rows is not known: pass train.</p>'
        return self._section("rows", "Single rows", parts, after)

    def _far(self, distance: FloatArray, usual: float) -> str:
        e, p = self.e, self.e.p
        wrong = outcome_of(e).right == 0
        some = np.unique(np.linspace(0, len(e) - 1, min(len(e), _MOST_POINTS)).round().astype(int))
        distance, wrong, p = distance[some], wrong[some], p[some]
        if isinstance(p, ClassPredictive):
            ax = plots.far_rows(
                distance, p.entropy, wrong, usual=usual, names=("right", "wrong"), ylabel="entropy of the prediction"
            )
        else:
            ax = plots.far_rows(distance, p.std, wrong, usual=usual)
        words = "Columns are multiplied by their relevances. Far rows should be predicted with less certainty."
        return self._figure(ax, "Distance from the training data", words)

    def model(self) -> Section | None:
        """Columns, learning curve and training; None where there is none of them."""
        e = self.e
        parts: list[str] = []
        relevance = getattr(e.estimator, "relevance_", None)
        if relevance is not None:
            words = "What each scaled column is multiplied by: the function changes fast along relevant ones."
            parts.append(
                self._figure(
                    plots.relevance(relevance, ax=_panel(0.8 + 0.24 * min(20, np.size(relevance)))),
                    "Relevance of columns",
                    words,
                )
            )
        if (curve := learning_curve(e, _PARTS)) is not None:
            last = curve[-1][1]
            means = [float(values.mean()) for _, values in curve]
            errors = [mean_and_error(last - values)[1] for _, values in curve]
            parts.append(
                self._figure(
                    plots.learning_curve([count for count, _ in curve], means, errors),
                    "Would more rows help?",
                    "Log-likelihood of the held-out rows where the model knows a part of its training rows, with the "
                    "hyperparameters and features of all. Bars are standard errors of the difference to all rows. "
                    "Still rising at the right end: yes.",
                )
            )
        history = e.estimator.history_
        if len(history) > 2 and "step" in history:
            parts.append(
                self._figure(
                    plots.history(history, ax=_panel(3.1)),
                    "Training",
                    "The objective and its terms at each step; a curve that still falls at the end wants more steps.",
                )
            )
        if not parts:
            return None
        return self._section("model", "The model", parts, self._weights())

    def _weights(self) -> str:
        stack = self.e.estimator.stack_
        if len(stack.models) < 2:
            return ""
        k = min(self.e.output or 0, stack.weights.shape[1] - 1)
        named = zip(stack.models, stack.weights[:, k].tolist(), strict=True)
        told = ", ".join(f"{name} {100 * weight:.0f} %" for name, weight in named)
        return f'<p class="soft">Predictions are a mixture: {told}.</p>'


def _panel(height: float) -> Axes:
    """Of one width, so that text has one size on the page."""
    return plots.new_figure(4.2, height).add_subplot()


def _bars(groups: list[Group], what: str, expected: float | None) -> Axes:
    columns = zip(*((group.observed, group.low, group.high) for group in groups), strict=True)
    names = [f"{group.name} (n = {group.rows})" for group in groups]
    return plots.group_bars(names, *columns, expected=expected, xlabel=what)
