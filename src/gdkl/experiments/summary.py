"""What a benchmark says: means over tables, tables won, paired differences, and a picture of these."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from gdkl.experiments.results import Line, grouped
from gdkl.experiments.spec import Column, Spec
from gdkl.experiments.tables import Published, cell
from gdkl.numerics import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

#: A pandas DataFrame, whose annotations are too wide to compute with.
Frame: TypeAlias = Any

#: Columns by which methods are compared: a log-likelihood, and a score that no single row decides.
_COMPARED = 2


def split_scores(lines: Sequence[Line], column: Column) -> Frame:
    """A row per dataset and split, a column per method."""
    import pandas as pd  # noqa: PLC0415  (help does not need it)

    keys = [(line["dataset"], line["split"], line["method"]) for line in lines]
    values = [column.factor * line["scores"][column.part][column.score] for line in lines]
    return pd.Series(values, pd.MultiIndex.from_tuples(keys), dtype=float).unstack(sort=False)


def gains(scores: Frame, other: str, column: Column) -> Frame:
    """By how much each method is better than another: a row per dataset, over the splits that both have."""
    return column.better * scores.sub(scores.get(other, math.nan), axis=0).groupby(level=0, sort=False).mean()


#: Rows of a table by their name, and in each the cells by their column.
Rows: TypeAlias = Mapping[str, Mapping[str, str]]


def summary_tables(spec: Spec, lines: Sequence[Line]) -> list[Table]:
    """The `summaries` for a terminal."""
    return [_table(title, rows) for title, rows in summaries(spec, lines)]


def summaries(spec: Spec, lines: Sequence[Line]) -> list[tuple[str, Rows]]:
    """Two for each size: means over datasets, with gains on the compared method; and how many datasets each has won."""
    found: list[tuple[str, Rows]] = []
    for own in grouped(lines, lambda line: str(line["size"])):
        means: dict[str, dict[str, str]] = {}
        wins: dict[str, dict[str, list[int]]] = {}
        for index, column in enumerate(spec.columns):
            scores = split_scores(own, column)
            over = gains(scores, spec.compared, column)
            by_table = scores.groupby(level=0).mean()
            for method in scores:
                row = means.setdefault(str(method), {"tables": str(by_table[method].count())})
                row[column.title] = f"{by_table[method].mean():.{column.digits}f}"
                if index == 0:  # a single table may decide a mean log-likelihood
                    row[f"median {column.title}"] = f"{by_table[method].median():.{column.digits}f}"
                if index < _COMPARED:
                    known = over[method].count() and method != spec.compared
                    gain = Published(over[method].mean(), over[method].sem()) if known else None
                    row[f"gain in {column.title}"] = cell(gain, column.digits)
                    for other, won in (gains(scores, str(method), column) < 0).sum().items():
                        wins.setdefault(str(method), {}).setdefault(str(other), []).append(int(won))
        for method, row in means.items():
            for name in ("fit", "predict"):
                seconds = [line["seconds"][name] for line in own if line["method"] == method]
                row[f"s {name}"] = f"{sum(seconds) / len(seconds):.2f}"
        shown = {
            method: {other: " / ".join(map(str, won)) if other != method else "" for other, won in row.items()}
            for method, row in wins.items()
        }
        about = f"{spec.name}, n = {own[0]['size']}"
        scored = " / ".join(column.title for column in spec.columns[:_COMPARED])
        titles = (
            f"{about}: means and median over tables; gains on {spec.compared} ± standard error, by table",
            f"{about}: tables on which the row is better than the column, {scored}",
        )
        found += zip(titles, (means, shown), strict=True)
    return found


def _table(title: str, rows: Rows) -> Table:
    from rich.table import Table  # noqa: PLC0415  (help does not need it)

    shown = Table("method", title=title)
    for name in next(iter(rows.values())):
        shown.add_column(name, justify="right")
    for method, row in rows.items():
        shown.add_row(method, *row.values())
    return shown


def write_pictures(spec: Spec, lines: Sequence[Line], folder: Path) -> list[Path]:
    """Write the experiment's own picture, or each of the `gain_figures`; an experiment with neither has none."""
    if spec.picture is not None:
        path = folder / f"{spec.name}.png"
        write_atomically(path, spec.picture(lines).savefig)
        return [path]
    paths: list[Path] = []
    for size, figure in gain_figures(spec, lines).items():
        paths.append(folder / f"{spec.name}-{size}.png")
        write_atomically(paths[-1], figure.savefig)
    return paths


def gain_figures(spec: Spec, lines: Sequence[Line]) -> dict[str, Figure]:
    """One for each size in which the reference was run: gains of all other methods on it, dataset by dataset."""
    from gdkl.plots import difference_figure  # noqa: PLC0415  (slow to import)

    figures: dict[str, Figure] = {}
    for own in grouped(lines, lambda line: str(line["size"])) if spec.reference else ():
        panels: dict[str, dict[str, dict[str, float]]] = {}
        for column in spec.columns[:_COMPARED]:
            found = gains(split_scores(own, column), spec.reference, column).drop(
                columns=spec.reference, errors="ignore"
            )
            panels[column.title] = {str(method): dict(found[method].dropna()) for method in found}
        if any(any(panel.values()) for panel in panels.values()):
            figures[str(own[0]["size"])] = difference_figure(panels, spec.reference)
    return figures
