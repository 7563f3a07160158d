"""Pictures of a report: curves over the number of rows, dots method by method, reliability diagrams, gains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from gdkl.experiments.report import Section, mean_and_deviation
from gdkl.experiments.results import Line
from gdkl.experiments.spec import Column, Size, Spec
from gdkl.experiments.summary import gain_figures
from gdkl.experiments.tables import Published, paper_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Methods as `gdkl.plots` colours them.
_LABELS = {"gdkl": "GDKL", "dkl": "DKL", "nngp": "NNGP", "gp_rbf": "GP", "nn": "NN", "due": "DUE", "dlvkl": "DLVKL"}

#: Scores that are drawn: a likelihood, and an error or accuracy.
_DRAWN = 2


@dataclass(frozen=True)
class Picture:
    """A figure with its words; a wide one is shown alone, others side by side."""

    caption: str
    figure: Figure
    wide: bool = False


def pictures(found: Section) -> Iterator[Picture]:
    """The pictures of an experiment, of its small part where nothing else was run; none without any run."""
    spec, lines = found.spec, found.lines or found.quick
    quick = "" if found.lines or not lines else ", quick"
    if not lines:
        return
    if spec.name == "toy":
        from gdkl.plots import toy_figure  # noqa: PLC0415  (slow to import)

        yield Picture(
            "The paper's Figure 1, computed anew: what is known from D1, and the targets for D2", toy_figure(), True
        )
    if spec.reference:
        for size, figure in gain_figures(spec, lines).items():
            yield Picture(f"{size} rows: gains on {spec.reference}, table by table{quick}", figure, True)
    elif spec.sizes:
        yield from _curves(spec, lines, quick)
    else:
        yield from _dots(spec, lines, quick)
    # Where calibration is what the tables are about: other tables of the same runs need not repeat the pictures.
    if any(column.score == "mce" for column in spec.columns):
        yield from _reliability(spec, lines, quick)


def _tested(spec: Spec) -> list[Column]:
    return [column for column in spec.columns if column.part in ("test", "seconds") and column.better][:_DRAWN]


def _cell(lines: Sequence[Line], column: Column, dataset: str, size: Size, method: str) -> Published | None:
    place = (dataset, size, method)
    return mean_and_deviation(
        [line for line in lines if (line["dataset"], line["size"], line["method"]) == place], column
    )


def _curves(spec: Spec, lines: Sequence[Line], quick: str) -> Iterator[Picture]:
    from gdkl.plots import score_curves  # noqa: PLC0415

    for dataset, column in product(spec.datasets, _tested(spec)):
        ours: dict[str, dict[float, Any]] = {}
        papers: dict[str, dict[float, Any]] = {}
        for method, size in product(spec.methods, spec.sizes):
            label = _LABELS.get(method, method)
            for curves, value in (
                (ours, _cell(lines, column, dataset, size, method)),
                (papers, paper_figure(spec, column, dataset, size, method)),
            ):
                if value is not None:
                    curves.setdefault(label, {})[size] = tuple(value)
        if ours:
            ax = score_curves(ours, papers, title=f"{dataset}: {column.title}", ylabel=column.title)
            dashed = ", the paper's dashed" if papers else ""
            yield Picture(f"{dataset}: {column.title} against the number of rows{dashed}{quick}", ax.figure)  # pyright: ignore[reportArgumentType]


def _dots(spec: Spec, lines: Sequence[Line], quick: str) -> Iterator[Picture]:
    from gdkl.plots import score_dots  # noqa: PLC0415

    for dataset, column in product(spec.datasets, _tested(spec)):
        dots: dict[str, dict[str, Any]] = {}
        train = next((one for one in spec.columns if (one.part, one.score) == ("train", column.score)), None)
        for method in spec.methods:
            kinds = {"test": _cell(lines, column, dataset, None, method)}
            kinds |= {"train": _cell(lines, train, dataset, None, method)} if train else {}
            if not any(kinds.values()):
                continue
            kinds["paper's test"] = paper_figure(spec, column, dataset, None, method)
            kinds |= {"paper's train": paper_figure(spec, train, dataset, None, method)} if train else {}
            dots[_LABELS.get(method, method)] = {kind: tuple(value) for kind, value in kinds.items() if value}
        if dots:
            ax = score_dots(dots, title=f"{dataset}: {column.title}")
            yield Picture(f"{dataset}: {column.title} of each method{quick}", ax.figure)  # pyright: ignore[reportArgumentType]


def _reliability(spec: Spec, lines: Sequence[Line], quick: str) -> Iterator[Picture]:
    from gdkl.plots import color_cycle, reliability_bars  # noqa: PLC0415

    held = [line for line in lines if "reliability" in line.get("details", {})]
    colors = color_cycle(_LABELS.get(method, method) for method in spec.methods)
    for dataset, size, method in product(spec.datasets, spec.sizes or (None,), spec.methods):
        own = [line for line in held if (line["dataset"], line["size"], line["method"]) == (dataset, size, method)]
        if own:
            label = _LABELS.get(method, method)
            title = label if size is None else f"{label}, {size:g}"
            ax = reliability_bars(
                pooled_bins([line["details"]["reliability"] for line in own]), color=colors[label], title=title
            )
            yield Picture(f"Reliability of {title} on {dataset}, all runs{quick}", ax.figure)  # pyright: ignore[reportArgumentType]


def pooled_bins(found: Sequence[Mapping[str, Sequence[Any]]]) -> Any:
    """Bins of all predictions of several runs, from what each run's line holds.

    Example:
        >>> one = {"counts": [0, 4], "confidence": [None, 0.8], "accuracy": [None, 0.5]}
        >>> two = {"counts": [1, 12], "confidence": [0.4, 0.9], "accuracy": [1.0, 0.9]}
        >>> pooled_bins([one, two]).accuracy
        array([1. , 0.8])
    """
    from gdkl.metrics import CalibrationBins  # noqa: PLC0415

    counts = np.array([one["counts"] for one in found], dtype=np.int64)
    total = counts.sum(axis=0)
    with np.errstate(invalid="ignore"):
        means = [
            np.nansum(counts * np.array([one[name] for one in found], dtype=np.float64), axis=0) / total
            for name in ("confidence", "accuracy")
        ]
    return CalibrationBins(np.linspace(0.0, 1.0, len(total) + 1), total, *means)
