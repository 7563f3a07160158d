"""What a benchmark says: means over tables, tables won, paired differences, and a picture of these."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gdkl.experiments.results import Line, grouped
from gdkl.experiments.spec import Column, Spec
from gdkl.experiments.tables import Published, cell
from gdkl.numerics import write_atomically

if TYPE_CHECKING:
    from rich.table import Table

#: Scores of which more is better.
_GROWING = ("log_likelihood", "scaled_log_likelihood", "accuracy")

#: Columns by which methods are compared: a log-likelihood, and a score that outliers do not rule.
_COMPARED = 2


def split_scores(lines: Sequence[Line], column: Column) -> dict[str, dict[tuple[str, Any], float]]:
    """Scores by method, then by dataset and split."""
    found: dict[str, dict[tuple[str, Any], float]] = {}
    for line in lines:
        score = column.factor * line["scores"][column.part][column.score]
        found.setdefault(line["method"], {})[line["dataset"], line["split"]] = score
    return found


def by_table(scores: Mapping[tuple[str, Any], float]) -> dict[str, float]:
    """Mean over splits for each dataset.

    Example:
        >>> by_table({("a", 0): 1.0, ("a", 1): 3.0, ("b", 0): 5.0})
        {'a': 2.0, 'b': 5.0}
    """
    tables = dict.fromkeys(dataset for dataset, _ in scores)
    return {name: float(np.mean([score for (own, _), score in scores.items() if own == name])) for name in tables}


def gains(own: Mapping[tuple[str, Any], float], other: Mapping[tuple[str, Any], float]) -> dict[str, float]:
    """Differences to another method for each dataset, over the splits that both have.

    Example:
        >>> gains({("a", 0): 1.0, ("a", 1): 9.0}, {("a", 0): 3.0})
        {'a': -2.0}
    """
    return by_table({key: score - other[key] for key, score in own.items() if key in other})


def direction(column: Column) -> float:
    """1 where more is better, −1 where less is."""
    return math.copysign(1.0, column.factor) * (1.0 if column.score in _GROWING else -1.0)


def summary_tables(spec: Spec, lines: Sequence[Line]) -> list[Table]:
    """For each size: means over tables and differences to the compared method; and how many tables each has won."""
    from rich.table import Table  # noqa: PLC0415  (help does not need it)

    shown: list[Table] = []
    for members in grouped(lines, lambda line: str(line["size"])):
        scores = [split_scores(members, column) for column in spec.columns]
        compared = list(zip(spec.columns, scores, strict=True))[:_COMPARED]
        methods = list(scores[0])
        means = Table(title=f"{spec.name}, n = {members[0]['size']}: means over tables, differences ± standard error")
        titles = [column.title for column in spec.columns] + ["s fit", "s predict"]
        titles += [f"{column.title} − {spec.compared}'s" for column, _ in compared]
        for title in ("method", "tables", *titles):
            means.add_column(title, justify="left" if title == "method" else "right")
        wins = Table(
            title=f"tables won in {' / '.join(column.title for column, _ in compared)} against", show_lines=False
        )
        for title in ("method", *methods):
            wins.add_column(title, justify="left" if title == "method" else "right")
        for method in methods:
            row = [
                cell(_mean(by_table(own[method])), column.digits)
                for column, own in zip(spec.columns, scores, strict=True)
            ]
            for name in ("fit", "predict"):
                row.append(f"{np.mean([line['seconds'][name] for line in members if line['method'] == method]):.2f}")
            for column, own in compared:
                differences = gains(own[method], own.get(spec.compared, {}))
                row.append(cell(_mean(differences, error=True) if method != spec.compared else None, column.digits))
            means.add_row(method, str(len(by_table(scores[0][method]))), *row)
            wins.add_row(
                method,
                *(
                    ""
                    if other == method
                    else " / ".join(
                        str(sum(direction(column) * gain > 0 for gain in gains(own[method], own[other]).values()))
                        for column, own in compared
                    )
                    for other in methods
                ),
            )
        shown += [means, wins]
    return shown


def _mean(values: Mapping[str, float], error: bool = False) -> Published | None:
    found = np.array(list(values.values()))
    if not len(found):
        return None
    return Published(
        float(found.mean()), float(found.std(ddof=1) / math.sqrt(len(found))) if error and len(found) > 1 else math.nan
    )


def write_pictures(spec: Spec, lines: Sequence[Line], folder: Path) -> list[Path]:
    """For each size, differences of all methods to the reference table by table, where it was run."""
    from gdkl.plots import difference_figure  # noqa: PLC0415  (slow to import)

    paths: list[Path] = []
    for members in grouped(lines, lambda line: str(line["size"])):
        panels: dict[str, dict[str, dict[str, float]]] = {}
        for column in spec.columns[:_COMPARED]:
            scores = split_scores(members, column)
            other = scores.pop(spec.reference, {})
            sign = direction(column)
            panels[column.title] = {
                method: {name: sign * gain for name, gain in gains(own, other).items()}
                for method, own in scores.items()
            }
        if any(found for panel in panels.values() for found in panel.values()):
            path = folder / f"{spec.name}-{members[0]['size']}.png"
            figure = difference_figure(panels, spec.reference)
            write_atomically(path, lambda file, figure=figure: figure.savefig(file, format="png"))
            paths.append(path)
    return paths
