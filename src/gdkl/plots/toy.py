"""The paper's illustrative example and its Figure 1: the target that a guide gives a student at held-out points.

A Gaussian process fitted on D1 believes p(f | x, D1) at a point of D2. Conditioning that marginal on the point's own
noisy label gives p(f | x, y, D1), the Gaussian that guides the student: near the truth and tight where D1 says
enough, near the label and as wide as the noise where D1 says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gdkl.datasets import toy, toy_function
from gdkl.numerics import DataError, OptionError
from gdkl.plots.bands import draw_points, draw_truth, predictive_band, shade_gap
from gdkl.plots.style import BLUE, FONT_SIZE, GREY, add_legend, dress, new_figure
from gdkl.predictive import FloatArray, Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Where the paper takes the points of D1 away.
GAP = (4.0, 8.0)
#: Where the points lie.
DOMAIN = (-2.0, 12.0)
#: Variance of the noise on the labels.
NOISE_VARIANCE = 0.05

_GRID_POINTS = 400

#: Half width of a central 90 % interval in standard deviations: the normal quantile of 0.95.
_WIDTH_90 = 1.6448536269514722


def label_informed(
    mean: ArrayLike, variance: ArrayLike, y: ArrayLike, noise_variance: float
) -> tuple[FloatArray, FloatArray]:
    """Condition latent marginals N(μ, s²) each on its own noisy label: p(f | x, D1) becomes p(f | x, y, D1).

    The result has variance 1 / (1/s² + 1/σ²) and mean variance · (μ/s² + y/σ²), also where s² is zero.

    Args:
        mean: Means μ.
        variance: Variances s² of the function, without noise.
        y: Noisy labels.
        noise_variance: Variance σ² of their noise.

    Example:
        >>> label_informed([0.0, 0.0], [1.0, 0.0], [1.0, 1.0], noise_variance=1.0)
        (array([0.5, 0. ]), array([0.5, 0. ]))
    """
    mean, s2, y = (np.asarray(values, dtype=np.float64) for values in (mean, variance, y))
    if not noise_variance > 0 or bool((s2 < 0).any()):
        raise DataError("label_informed needs variances of at least 0 and a positive noise_variance.")
    total = s2 + noise_variance
    return (mean * noise_variance + y * s2) / total, s2 * noise_variance / total


@dataclass(frozen=True, eq=False)
class ToyExample:
    """All numbers of the illustrative example.

    Attributes:
        x1, y1: Positions and noisy labels of D1, none of them in the gap.
        x2, y2: Positions and noisy labels of D2.
        truth2: The function behind the labels of D2.
        grid, truth: Positions over the domain and the function there.
        posterior: Prediction on the grid given D1, of new observations and of the function.
        marginal_mean, marginal_variance: Those of p(f | x, D1) at D2.
        target_mean, target_variance: Those of p(f | x, y, D1) at D2.
        noise_variance: Noise variance that the evidence chose.
        gap: Region without points of D1.
    """

    x1: FloatArray
    y1: FloatArray
    x2: FloatArray
    y2: FloatArray
    truth2: FloatArray
    grid: FloatArray
    truth: FloatArray
    posterior: Predictive
    marginal_mean: FloatArray
    marginal_variance: FloatArray
    target_mean: FloatArray
    target_variance: FloatArray
    noise_variance: float
    gap: tuple[float, float]


def in_region(x: ArrayLike, region: tuple[float, float]) -> NDArray[np.bool_]:
    """Which positions lie in a closed interval.

    Example:
        >>> in_region([3.9, 4.0, 8.1], (4, 8))
        array([False,  True, False])
    """
    values = np.asarray(x, dtype=np.float64)
    return (values >= region[0]) & (values <= region[1])


def toy_example(n: int = 800, *, seed: int = 0, gap: tuple[float, float] = GAP) -> ToyExample:
    """Compute the paper's illustrative example.

    ``n`` noisy points are drawn uniformly over [−2, 12] and split at random into two halves, D1 and D2; those of D1 in
    the gap are removed; an RBF Gaussian process is fitted on D1 by evidence; its marginals at D2 are conditioned each
    on its own label.

    Example:
        >>> example = toy_example(120, seed=1)
        >>> len(example.x2), bool(((example.x1 >= 4) & (example.x1 <= 8)).any())
        (60, False)
    """
    from gdkl.estimators import GPRegressor  # noqa: PLC0415  (slow to import)

    if n < 20:
        raise OptionError(f"n={n} is too few for the toy example: use at least 20.")
    table = toy(n, seed=seed, noise_variance=NOISE_VARIANCE)
    x, y = table.X[:, 0], table.y
    # A stream of its own: the table was drawn from the plain seed.
    order = np.random.default_rng([seed, 1]).permutation(n)
    first, second = order[: n // 2], order[n // 2 :]
    first = first[~in_region(x[first], gap)]
    model = GPRegressor().fit(x[first, None], y[first])
    noise = float(np.asarray(model.noise_))
    marginal = model.predict_distribution(x[second, None])
    target_mean, target_variance = label_informed(marginal.mean, marginal.latent_variance, y[second], noise)
    grid = np.linspace(*DOMAIN, _GRID_POINTS)
    return ToyExample(
        x1=x[first],
        y1=y[first],
        x2=x[second],
        y2=y[second],
        truth2=toy_function(x[second]),
        grid=grid,
        truth=toy_function(grid),
        posterior=model.predict_distribution(grid[:, None]),
        marginal_mean=marginal.mean,
        marginal_variance=marginal.latent_variance,
        target_mean=target_mean,
        target_variance=target_variance,
        noise_variance=noise,
        gap=gap,
    )


def toy_figure(example: ToyExample | None = None) -> Figure:
    """The paper's Figure 1: what is known from D1, and what a guide makes of the labels of D2.

    Left: D1 with its gap, the target function and p(f | x, D1). Right: D2 and, for each of its points, the Gaussian
    p(f | x, y, D1) as a mean with a 90 % bar. Without an example, its numbers are those of the paper's setting.

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
        place = {"xy": (sum(example.gap) / 2, 0.02), "xycoords": ("data", "axes fraction")}
        ax.annotate("no data in $D_1$", **place, ha="center", va="bottom", fontsize=FONT_SIZE - 1, color=GREY)
        add_legend(ax, loc="upper center", ncols=5, columnspacing=1.2, handlelength=1.6)
    return figure


def _draw_posterior(ax: Axes, example: ToyExample) -> None:
    p = example.posterior
    predictive_band(
        ax,
        example.grid,
        Predictive.gaussian(p.mean, p.latent_variance, p.latent_variance),
        truth=(example.grid, example.truth),
        gap=example.gap,
        label=r"$p(f\mid x, D_1)$",
        title=r"Belief from $D_1$ alone: unsure in the gap",
    )
    draw_points(ax, example.x1, example.y1, label=r"$D_1$")


def _draw_targets(ax: Axes, example: ToyExample) -> None:
    shade_gap(ax, example.gap)
    draw_points(ax, example.x2, example.y2, label=r"$D_2$")
    x, mean, half = example.x2, example.target_mean, _WIDTH_90 * np.sqrt(example.target_variance)
    look: dict[str, Any] = {"color": BLUE, "alpha": 0.3, "linewidth": 1.1, "zorder": 2}
    ax.vlines(x, mean - half, mean + half, label="90 % interval", **look)
    draw_points(ax, x, mean, label=r"$p(f_*\mid x_*, y_*, D_1)$", color=BLUE, alpha=1.0, zorder=3)
    draw_truth(ax, example.grid, example.truth)
    dress(ax, title=r"Targets for $D_2$: sure where $D_1$ is, near the label in the gap", xlabel="x")
