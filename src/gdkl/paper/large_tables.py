"""Tables for the terminal of the experiments on large data: all methods side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from gdkl.paper.published import published
from gdkl.paper.tables import cell, score


def cifar_table(results: Sequence[Mapping[str, Any]]) -> Table:
    """One row a dataset and method: ours over the seeds, and the paper's.

    Args:
        results: Contents of result files, one a seed.
    """
    groups: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for result in results:
        key = (result["dataset"], result["method"], result["protocol"]["holdout"])
        groups.setdefault(key, []).append(result)
    table = Table(title="CIFAR with inducing points: mean ± standard deviation over the seeds")
    columns = ("dataset", "method", "scored on", "seeds", "accuracy", "paper", "LL", "paper", "ECE", "paper", "s a fit")
    for column in (*columns, "ms a step"):
        table.add_column(column, justify="left" if column in ("dataset", "method", "scored on") else "right")
    for (name, method, holdout), members in groups.items():
        together = {"splits": [split for member in members for split in member["splits"]]}
        accuracy = score(together, "test", "accuracy")
        paper = {short: published("cifar_full", method, f"{name}.{short}") for short in ("acc", "ll", "ece")}
        steps = [member["seconds_per_step"] for member in members if member["seconds_per_step"]]
        table.add_row(
            name,
            method,
            f"{holdout} training images" if holdout else "test",
            str(len(together["splits"])),
            cell(type(accuracy)(100 * accuracy.mean, 100 * accuracy.std)),
            cell(paper["acc"]),
            cell(score(together, "test", "log_likelihood"), 3),
            cell(paper["ll"]),
            cell(score(together, "test", "ece"), 3),
            cell(paper["ece"]),
            f"{np.mean([member['fit_seconds'] for member in members]):.0f}",
            f"{1000 * float(np.mean(steps)):.1f}" if steps else "–",
        )
    return table


def large_table(results: Sequence[Mapping[str, Any]]) -> Table:
    """One row a dataset and method: log-likelihood, error, coverage and time.

    Args:
        results: Contents of result files, those of one dataset together.
    """
    count = max((len(result["splits"]) for result in results), default=0)
    table = Table(title=f"Large tables, test rows: mean ± standard deviation over {count} splits")
    for column in ("dataset", "method", "train rows", "LL", "RMSE", "90 % coverage", "s a fit", "s a prediction"):
        table.add_column(column, justify="left" if column in ("dataset", "method") else "right")
    last = None
    for result in results:
        if last is not None and result["dataset"] != last:
            table.add_section()
        last = result["dataset"]
        coverage = score(result, "test", "coverage")
        seconds = [
            float(np.mean([split[name] for split in result["splits"]])) for name in ("fit_seconds", "predict_seconds")
        ]
        table.add_row(
            last,
            result["method"],
            _rows(result["splits"][0]),
            cell(score(result, "test", "log_likelihood"), 3),
            cell(score(result, "test", "rmse"), 3),
            f"{coverage.mean:.3f}",
            f"{seconds[0]:.0f}",
            f"{seconds[1]:.2f}",
        )
    return table


def _rows(split: Mapping[str, Any]) -> str:
    """How many rows were trained on, and of how many if not of all."""
    used, there = split["train_rows"], split.get("of_rows", split["train_rows"])
    return str(used) if used == there else f"{used} of {there}"
