"""Tables for the terminal of the experiments on large data: all methods side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.table import Table

from gdkl.paper import cifar
from gdkl.paper.published import Published, published
from gdkl.paper.tables import cell, score


def cifar_table(results: Sequence[Mapping[str, Any]]) -> Table:
    """One row a dataset, method and settings: ours over the seeds, as they are and mirrored, and the paper's.

    Args:
        results: Contents of result files, one a seed. Runs with other settings are no seeds of the same: they have a
            row of their own, which says what they have other than the command's defaults.
    """
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for result in results:
        key = (result["dataset"], result["method"], json.dumps(result["protocol"], sort_keys=True))
        groups.setdefault(key, []).append(result)
    table = Table(title="CIFAR with inducing points: mean ± standard deviation over the seeds")
    words = ("dataset", "method", "settings", "scored on")
    scores = ("accuracy", "paper", "LL", "paper", "ECE", "paper", "mirrored accuracy", "LL", "ECE")
    for column in (*words, "seeds", *scores, "s a fit", "ms a step"):
        table.add_column(column, justify="left" if column in words else "right")
    for (name, method, _), members in groups.items():
        together = {"splits": [split for member in members for split in member["splits"]]}
        plain = _class_cells(together, "test")
        paper = [cell(published("cifar_full", method, f"{name}.{short}")) for short in ("acc", "ll", "ece")]
        steps = [member["seconds_per_step"] for member in members if member["seconds_per_step"]]
        holdout = members[0]["protocol"]["holdout"]
        table.add_row(
            name,
            method,
            _other_settings(members[0]["protocol"]),
            f"{holdout} training images" if holdout else "test",
            str(len(together["splits"])),
            *(text for pair in zip(plain, paper, strict=True) for text in pair),
            *_class_cells(together, "mirrored"),
            f"{np.mean([member['fit_seconds'] for member in members]):.0f}",
            f"{1000 * float(np.mean(steps)):.1f}" if steps else "–",
        )
    return table


def _class_cells(result: Mapping[str, Any], view: str) -> tuple[str, str, str]:
    """Accuracy, log-likelihood and calibration error of a view; dashes if it has not been scored for every seed."""
    if not all(view in split for split in result["splits"]):
        return ("–", "–", "–")
    accuracy = score(result, view, "accuracy")
    percent = Published(100 * accuracy.mean, 100 * accuracy.std)
    return (cell(percent), cell(score(result, view, "log_likelihood"), 3), cell(score(result, view, "ece"), 3))


def _other_settings(protocol: Mapping[str, Any]) -> str:
    """Settings of a run on CIFAR that are not the defaults; what it is scored on has a column of its own."""
    usual = {name: value for name, value in asdict(cifar.Protocol()).items() if name != "holdout"}
    other = [f"{name} {protocol[name]}" for name in usual if name in protocol and protocol[name] != usual[name]]
    return ", ".join(other) or "–"


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
