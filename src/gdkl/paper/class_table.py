"""Small tables, classified: all methods side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table


class MeanAndError(NamedTuple):
    """Mean of a score over splits, and its standard error."""

    mean: float
    error: float


def mean_and_error(result: Mapping[str, Any], name: str) -> MeanAndError:
    """Of one score over the splits of a result."""
    values = np.asarray([split["test"][name] for split in result["splits"]])
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
    return MeanAndError(float(values.mean()), error)


def classes_table(results: Sequence[Mapping[str, Any]]) -> Table:
    """One row a dataset, part and method: NLL, calibration error and accuracy on the rows that were left out.

    Args:
        results: Contents of result files, those of one dataset and part together.
    """
    count = max((len(result["splits"]) for result in results), default=0)
    table = Table(title=f"Classification: mean ± standard error over {count} splits")
    for column in ("dataset", "train", "method", "NLL", "ECE", "accuracy", "s a fit"):
        table.add_column(column, justify="left" if column in ("dataset", "method") else "right")
    last = None
    for result in results:
        group = (result["dataset"], result["protocol"]["part"])
        if last is not None and group != last:
            table.add_section()
        last = group
        alike = [other for other in results if (other["dataset"], other["protocol"]["part"]) == group]
        best = min(mean_and_error(other, "nll").mean for other in alike)
        nll, ece, accuracy = (mean_and_error(result, name) for name in ("nll", "ece", "accuracy"))
        shown = _shown(nll, 3)
        seconds = float(np.mean([split["fit_seconds"] for split in result["splits"]]))
        table.add_row(
            group[0],
            f"{group[1]:.0%}",
            result["method"],
            f"[bold]{shown}[/bold]" if nll.mean == best else shown,
            _shown(ece, 3),
            _shown(accuracy, 1, unit=100),
            f"{seconds:.1f}",
        )
    return table


def _shown(score: MeanAndError, digits: int, unit: float = 1.0) -> str:
    """A mean with its standard error, which a single split has none of."""
    mean = f"{unit * score.mean:.{digits}f}"
    return mean if math.isnan(score.error) else f"{mean} ± {unit * score.error:.{digits}f}"


def standing(results: Sequence[Mapping[str, Any]], method: str = "gdkl") -> list[str]:
    """One line a dataset and part: how far a method's NLL is from the best other one's, split by split.

    Args:
        results: Contents of result files.
        method: Whose standing.
    """
    lines: list[str] = []
    for own in (result for result in results if result["method"] == method):
        group = (own["dataset"], own["protocol"]["part"])
        others = [
            result
            for result in results
            if (result["dataset"], result["protocol"]["part"]) == group and result["method"] != method
        ]
        if not others or len(own["splits"]) < 2:
            continue
        best = min(others, key=lambda result: mean_and_error(result, "nll").mean)
        if len(best["splits"]) != len(own["splits"]):
            continue
        pairs = zip(own["splits"], best["splits"], strict=True)
        behind = np.asarray([one["test"]["nll"] - other["test"]["nll"] for one, other in pairs])
        error = float(behind.std(ddof=1) / np.sqrt(len(behind)))
        mean = float(behind.mean())
        where = "better than" if mean < 0 else "behind"
        far = f"{abs(mean):.3f} ± {error:.3f} {where} {best['method']}"
        lines.append(f"{group[0]} {group[1]:.0%}: {method} is {far} in NLL, by split.")
    return lines
