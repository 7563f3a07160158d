"""Our results beside the paper's, as a table for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from gdkl.paper.published import Published, published

_SCORES = (("log_likelihood", "ll"), ("rmse", "rmse"))


def score(result: Mapping[str, Any], part: str, name: str) -> Published:
    """Mean and standard deviation of a score over all splits of a result."""
    values = np.asarray([split[part][name] for split in result["splits"]])
    return Published(float(values.mean()), float(values.std()))


def uci_table(results: Sequence[Mapping[str, Any]], part: str = "test") -> Table:
    """One row a dataset and method: ours over all splits, and the paper's.

    Args:
        results: Contents of result files.
        part: "test" or "train".
    """
    count = max((len(result["splits"]) for result in results), default=0)
    table = Table(title=f"UCI, {part} rows: mean ± standard deviation over {count} splits")
    for column in ("dataset", "method", "LL", "paper", "RMSE", "paper", "90 % coverage", "s for all splits"):
        table.add_column(column, justify="left" if column in ("dataset", "method") else "right")
    last = None
    for result in results:
        if last is not None and result["dataset"] != last:
            table.add_section()
        last = result["dataset"]
        cells = [last, result["method"]]
        for name, short in _SCORES:
            cells += [_cell(score(result, part, name)), _cell(_paper(result, part, short))]
        cells += [f"{score(result, part, 'coverage').mean:.2f}", f"{result['fit_seconds_all_splits']:.0f}"]
        table.add_row(*cells)
    return table


def _paper(result: Mapping[str, Any], part: str, short: str) -> Published | None:
    cell = f"{result['dataset']}.{short}"
    found = published(f"uci_{part}", result["method"], cell)
    return found or (published("objectives", result["method"], cell) if part == "test" else None)


def _cell(value: Published | None) -> str:
    if value is None:
        return "–"
    digits = 0 if abs(value.mean) >= 100 else 2
    return f"{value.mean:.{digits}f} ± {value.std:.{digits}f}"
