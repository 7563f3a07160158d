"""The demo's pictures."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from gdkl import plots
from gdkl.cli.demo_study import LEVEL, Result, Study
from gdkl.datasets import toy_function

_GRID_POINTS = 500

#: Models with a training loop, whose curves are worth a look.
_TRAINED = ("GDKL", "DKL")


def to_png(figure: Figure) -> bytes:
    """A figure as the bytes of a PNG file."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()


def _note(result: Result) -> str:
    held = f"{100 * LEVEL:g} % band holds {100 * result.test['coverage']:.0f} %"
    return f"test LL {result.test['log_likelihood']:.2f}, {held}".replace("-", "−")


def bands_of(study: Study) -> Figure:
    """Predictive bands of all models on the one-dimensional problem."""
    grid = np.linspace(*plots.DOMAIN, _GRID_POINTS)
    return plots.bands_figure(
        grid,
        {name: result.model.predict_distribution(grid[:, None]) for name, result in study.results.items()},
        observed=(study.problem.X, study.problem.y),
        truth=(grid, toy_function(grid)),
        gap=plots.GAP,
        notes={name: _note(result) for name, result in study.results.items()},
    )


def calibration_of(studies: Sequence[Study]) -> Figure:
    """Calibration curves, a panel for each problem."""
    figure = plots.new_figure(4.7 * len(studies), 4.5)
    panels = figure.subplots(1, len(studies), squeeze=False)[0]
    for ax, study in zip(panels, studies, strict=True):
        plots.calibration(study.predictives(), study.problem.y_test, title=study.problem.name, ax=ax)
    return figure


def training_of(studies: Sequence[Study]) -> Figure:
    """Training curves of the models that train, a row for each problem."""
    figure = plots.new_figure(10.4, 3.1 * len(studies))
    grid = figure.subplots(len(studies), len(_TRAINED), squeeze=False)
    for row, study in zip(grid, studies, strict=True):
        for ax, name in zip(row, _TRAINED, strict=True):
            plots.history(study.results[name].model.history_, title=f"{name} on {study.problem.name}", ax=ax)
    return figure
