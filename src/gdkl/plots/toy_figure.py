"""The paper's Figure 1."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import ndtri

from gdkl.plots.bands import draw_points, draw_truth, predictive_band, shade_gap
from gdkl.plots.style import BLUE, FONT_SIZE, GREY, add_legend, dress, new_figure
from gdkl.plots.toy import ToyExample, toy_example
from gdkl.predictive import Predictive

#: Half width of a central 90 % interval in standard deviations.
_WIDTH_90 = float(ndtri(0.95))


def toy_figure(example: ToyExample | None = None) -> Figure:
    """The paper's Figure 1: what is known from D1, and what a guide makes of the labels of D2.

    Left: D1 with its gap, the target function and p(f | x, D1). Right: D2 and, for each of its points, the Gaussian
    p(f | x, y, D1) as a mean with a 90 % bar.

    Args:
        example: The numbers; None computes those of the paper's setting.

    Example:
        >>> figure = toy_figure(toy_example(120, seed=1))
        >>> len(figure.axes)
        2
    """
    example = toy_example() if example is None else example
    figure = new_figure(11, 4.1)
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    _draw_posterior(left, example)
    _draw_targets(right, example)
    values = np.concatenate([example.y1, example.y2])
    margin = 0.08 * float(np.ptp(values))
    # The posterior may leave the picture in the gap: what matters is where the data is.
    left.set_ylim(float(values.min()) - margin, float(values.max()) + 3.5 * margin)
    left.set_xlim(float(example.grid[0]), float(example.grid[-1]))
    for ax in (left, right):
        _name_gap(ax, example.gap)
        add_legend(ax, loc="upper center", ncols=5, columnspacing=1.2, handlelength=1.6)
    return figure


def _draw_posterior(ax: Axes, example: ToyExample) -> None:
    p = example.posterior
    latent = Predictive.gaussian(p.mean, p.latent_variance, p.latent_variance)
    predictive_band(
        ax,
        example.grid,
        latent,
        truth=(example.grid, example.truth),
        gap=example.gap,
        label=r"$p(f\mid x, D_1)$",
        title=r"Belief from $D_1$ alone: unsure in the gap",
    )
    draw_points(ax, example.x1, example.y1, label=r"$D_1$")


def _draw_targets(ax: Axes, example: ToyExample) -> None:
    shade_gap(ax, example.gap)
    draw_points(ax, example.x2, example.y2, label=r"$D_2$")
    half = _WIDTH_90 * np.sqrt(example.target_variance)
    ax.vlines(
        example.x2,
        example.target_mean - half,
        example.target_mean + half,
        color=BLUE,
        alpha=0.3,
        linewidth=1.1,
        label="90 % interval",
        zorder=2,
    )
    ax.plot(
        example.x2,
        example.target_mean,
        linestyle="none",
        marker="o",
        markersize=2.6,
        markeredgewidth=0,
        color=BLUE,
        label=r"$p(f_*\mid x_*, y_*, D_1)$",
        zorder=3,
    )
    draw_truth(ax, example.grid, example.truth)
    dress(ax, title=r"Targets for $D_2$: sure where $D_1$ is, near the label in the gap", xlabel="x")


def _name_gap(ax: Axes, gap: tuple[float, float]) -> None:
    ax.annotate(
        "no data in $D_1$",
        xy=(sum(gap) / 2, 0.02),
        xycoords=("data", "axes fraction"),
        ha="center",
        va="bottom",
        fontsize=FONT_SIZE - 1,
        color=GREY,
    )
