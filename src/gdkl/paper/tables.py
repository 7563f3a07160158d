"""Our results beside the paper's, as a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from gdkl.paper.published import Published, published

_SCORES = (("log_likelihood", "ll"), ("rmse", "rmse"))


def score(result: Mapping[str, Any], part: str, name: str) -> Published:
    """Mean and (sample) standard deviation of a score over all splits of a result; of one there is none."""
    values = np.asarray([split[part][name] for split in result["splits"]])
    return Published(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else math.nan)


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
            cells += [cell(score(result, part, name)), cell(_paper(result, part, short))]
        # All splits are one training: its time cannot be divided where a table shows some of them.
        trained = result["protocol"]["seeds"]
        seconds = f"{result['fit_seconds_all_splits']:.0f}"
        seconds += f" for {trained}" if trained != len(result["splits"]) else ""
        cells += [f"{score(result, part, 'coverage').mean:.2f}", seconds]
        table.add_row(*cells)
    return table


def fewshot_table(results: Sequence[Mapping[str, Any]]) -> Table:
    """One row a number of images, method and guide: ours over the seeds, and the paper's.

    Args:
        results: Contents of result files, one a seed, and of those of means over the seeds.
    """
    groups: dict[tuple[str, int, str, str, str], list[Mapping[str, Any]]] = {}
    for result in sorted(results, key=lambda result: (str(result["draw"]), result["n"])):
        guide = result["protocol"].get("guide", "–")
        seeds = f"mean of {len(result['mean_of_seeds'])}" if "mean_of_seeds" in result else ""
        groups.setdefault((str(result["draw"]), result["n"], result["method"], guide, seeds), []).append(result)
    trials = any(result.get("scored") == "validation" for result in results)
    images = "other training images" if trials else "10000 test images"
    kinds = {_network(result["protocol"]) for result in results}
    network = kinds.pop() if len(kinds) == 1 else ""
    table = Table(title=f"CIFAR-10, few labels, {network}{images}: mean ± standard deviation over the seeds")
    columns = (
        "draw",
        "n",
        "method",
        "guide",
        "seeds",
        "LL",
        "paper",
        "accuracy",
        "paper",
        "ECE",
        "LL / accuracy, mirrored",
        "shifted",
        "s a fit",
        "ms a step",
    )
    for column in columns:
        table.add_column(column, justify="left" if column in ("draw", "method", "guide") else "right")
    last = None
    for (draw, n, method, guide, seeds), members in groups.items():
        if last is not None and (draw, n) != last:
            table.add_section()
        last = (draw, n)
        together = {"splits": [split for member in members for split in member["splits"]]}
        accuracy = score(together, "test", "accuracy")
        # The paper's figures are of its own subset, over its seeds.
        paper = {
            short: None if trials else published("fewshot", method, f"cifar10.n{n}.{short}") for short in ("ll", "acc")
        }
        steps = [member["seconds_per_step"] for member in members if member["seconds_per_step"]]
        table.add_row(
            draw,
            str(n),
            method,
            guide,
            seeds or str(len(together["splits"])),
            cell(score(together, "test", "log_likelihood"), 3),
            cell(paper["ll"]),
            cell(Published(100 * accuracy.mean, 100 * accuracy.std)),
            cell(paper["acc"]),
            cell(score(together, "test", "ece"), 3),
            _of_view(together, "mirrored"),
            _of_view(together, "shifted"),
            f"{np.mean([member['fit_seconds'] for member in members]):.0f}",
            f"{1000 * float(np.mean(steps)):.1f}" if steps else "–",
        )
    return table


def _network(protocol: Mapping[str, Any]) -> str:
    """What was trained, and on which images, for a title that goes on."""
    if "depth" not in protocol:
        return ""
    altered = ", images altered in training" if protocol.get("augment") else ""
    return f"WRN-{protocol['depth']}-{protocol['widen_factor']}{altered}, "


def _of_view(result: Mapping[str, Any], view: str) -> str:
    """Mean log-likelihood and accuracy of predictions averaged over views; a dash where a seed has none."""
    if not all(view in split for split in result["splits"]):
        return "–"
    return f"{score(result, view, 'log_likelihood').mean:.3f} / {100 * score(result, view, 'accuracy').mean:.1f}"


def _paper(result: Mapping[str, Any], part: str, short: str) -> Published | None:
    place = f"{result['dataset']}.{short}"
    found = published(f"uci_{part}", result["method"], place)
    return found or (published("objectives", result["method"], place) if part == "test" else None)


def cell(value: Published | None, digits: int = 2) -> str:
    """A score as a table shows it; a dash where there is none."""
    if value is None:
        return "–"
    digits = 0 if abs(value.mean) >= 100 else digits
    mean = f"{value.mean:.{digits}f}"
    return mean if math.isnan(value.std) else f"{mean} ± {value.std:.{digits}f}"
