"""Results beside the paper's, as a table for the terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gdkl.experiments.results import Line, grouped
from gdkl.experiments.spec import Column, Size, Spec

if TYPE_CHECKING:
    from rich.table import Table

_MISSING = "–"


class Published(NamedTuple):
    """A cell of one of the paper's tables: mean and standard deviation over its runs."""

    mean: float
    std: float


@cache
def _tables() -> dict[str, dict[str, dict[str, list[float]]]]:
    return json.loads(files("gdkl.experiments").joinpath("published.json").read_text())


def published(table: str, row: str, cell: str) -> Published | None:
    """A cell of one of the paper's tables, or None where it has none; all three names are the paper's.

    Args:
        table: Label of the table.
        row: A method as the table calls it.
        cell: Dataset, number of rows where there is one, and score.

    Example:
        >>> published("app_tab:fig2_test", "GDKL", "boston.ll")
        Published(mean=-2.47, std=0.14)
        >>> published("app_tab:fig3_50", "GP-RBF", "buzz.n50.rmse")
        Published(mean=1.3, std=0.16)
    """
    values = _tables().get(table, {}).get(row, {}).get(cell)
    return None if values is None else Published(*values)


def paper_figure(spec: Spec, column: Column, dataset: str, size: Size, method: str) -> Published | None:
    """What the paper has for a method's score on the test rows, or None.

    Example:
        >>> from gdkl.experiments import spec_named
        >>> uci = spec_named("uci")
        >>> paper_figure(uci, uci.columns[0], "energy", None, "gp_rbf")
        Published(mean=-0.51, std=0.13)
    """
    paper = spec.paper
    row = None if paper is None else paper.rows.get(method)
    if paper is None or row is None or not column.paper or (column.methods and method not in column.methods):
        return None
    name = paper.cell.format(dataset=dataset, size=size, score=column.paper)
    found = (published(label.format(size=size), row, name) for label in paper.tables.get(column.part, ()))
    return next((figure for figure in found if figure is not None), None)


def score_of(line: Line, column: Column) -> float | None:
    """A column's score in a line, as the table shows it, or None; the part "seconds" is what the cell took.

    Example:
        >>> score_of({"scores": {"test": {"accuracy": 0.5}}}, Column("accuracy", "accuracy", factor=100))
        50.0
    """
    if column.methods and line["method"] not in column.methods:
        return None
    scores = line["seconds"] if column.part == "seconds" else line["scores"].get(column.part, {})
    return column.factor * scores[column.score] if column.score in scores else None


def table(spec: Spec, lines: Sequence[Line]) -> Table:
    """One row per dataset, size, draw, method and settings: mean ± deviation or error over its cells.

    Lines of the results file with other than the declared settings have rows of their own, which say what differs.
    """
    from rich.table import Table  # noqa: PLC0415

    groups = grouped(lines, lambda line: json.dumps(_group(spec, line), sort_keys=True))
    best = _best(spec, groups)
    rows = [_row(spec, members, best) for members in groups]
    places = [(members[0]["dataset"], members[0]["size"], _draw(spec, members[0])) for members in groups]
    spread = {"deviation": "standard deviation", "error": "standard error"}[spec.error]
    shown = Table(title=f"{spec.about}: mean ± {spread}{quick_note(spec, lines)}")
    # Columns that say nothing are left out.
    always = ("dataset", "method")
    titles = [
        title
        for title in dict.fromkeys(title for row in rows for title in row)
        if title in always or any(row[title] not in (_MISSING, "") for row in rows)
    ]
    for title in titles:
        shown.add_column(title, justify="left" if title in (*always, "settings") else "right")
    for index, row in enumerate(rows):
        if index and places[index] != places[index - 1]:
            shown.add_section()
        shown.add_row(*(row[title] for title in titles))
    return shown


def quick_note(spec: Spec, lines: Iterable[Line]) -> str:
    """What a title says where some lines are of the small part of an experiment."""
    quick = any(line["settings"].get("quick") for line in lines)
    return f". Quick, which is not the protocol: {spec.quick.about if spec.quick else 'a part'}" if quick else ""


def _group(spec: Spec, line: Line) -> list[Any]:
    members = len(line["seed"]) if isinstance(line["seed"], list) else 0
    return [line[name] for name in ("dataset", "size", "method", "scored", "settings")] + [_draw(spec, line), members]


def _draw(spec: Spec, line: Line) -> Any:
    return line["split"] if spec.draws else None


def _row(spec: Spec, members: Sequence[Line], best: Mapping[str, float]) -> dict[str, str]:
    first = members[0]
    ensemble = isinstance(first["seed"], list)
    row = {
        "dataset": first["dataset"],
        "size": "" if first["size"] is None else f"{first['size']:g}",
        "draw": str(_draw(spec, first) or ""),
        "method": first["method"] + (f" (mean of {len(first['seed'])})" if ensemble else ""),
        "settings": _other_settings(spec, first),
        "scored on": "" if first["scored"] == "test" else first["scored"],
        "runs": str(len(members)),
    }
    for index, column in enumerate(spec.columns):
        found = _score(spec, members, column)
        text = cell(found, column.digits)
        if index == 0 and found is not None and best.get(_place(spec, first)) == found.mean:
            text = f"[bold]{text}[/bold]"
        row[column.title] = text
        if column.paper:
            row[f"paper's {column.title}"] = cell(paper_of_line(spec, first, column), 1 if column.factor == 100 else 2)
    for title, name, factor in (("s per fit", "fit", 1), ("ms per step", "per_step", 1000)):
        values = [line["seconds"][name] for line in members if name in line["seconds"]]
        row[title] = f"{factor * float(np.mean(values)):.1f}" if values else _MISSING
    return row


def _score(spec: Spec, members: Sequence[Line], column: Column) -> Published | None:
    """Mean and spread of a score; None if it was not scored for every cell."""
    scores = [score_of(line, column) for line in members]
    values = np.asarray([score for score in scores if score is not None])
    if len(values) < len(scores):
        return None
    if len(values) < 2:
        return Published(float(values.mean()), math.nan)
    spread = float(values.std(ddof=1)) / (1.0 if spec.error == "deviation" else math.sqrt(len(values)))
    return Published(float(values.mean()), spread)


def _place(spec: Spec, line: Line) -> str:
    return json.dumps([line["dataset"], line["size"], _draw(spec, line), line["scored"]])


def _best(spec: Spec, groups: Iterable[Sequence[Line]]) -> dict[str, float]:
    """The best mean of the first column in each place; larger is better unless its sign is turned."""
    column = spec.columns[0]
    choose = min if column.factor < 0 else max
    found: dict[str, list[float]] = {}
    for members in groups:
        score = _score(spec, members, column)
        if score is not None:
            found.setdefault(_place(spec, members[0]), []).append(score.mean)
    return {place: choose(values) for place, values in found.items() if len(values) > 1}


def paper_of_line(spec: Spec, line: Line, column: Column) -> Published | None:
    """What the paper has for a line: nothing for validation rows, other draws and means over networks."""
    if spec.paper is None or line["scored"] != "test" or isinstance(line["seed"], list):
        return None
    if spec.paper.split is not None and line["split"] != spec.paper.split:
        return None
    return paper_figure(spec, column, line["dataset"], line["size"], line["method"])


def _other_settings(spec: Spec, line: Line) -> str:
    """Settings that are not the declared ones."""
    usual = flat(spec.settings(line["method"], {})) if line["method"] in spec.methods else {}
    own = flat(line["settings"])
    names = [name for name in dict.fromkeys((*own, *usual)) if own.get(name) != usual.get(name)]
    return ", ".join(f"{name}={own.get(name)}" for name in names if name != "validation")


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the preset's as "preset.NAME".

    Example:
        >>> flat({"beta": 1.0, "preset": {"n_iter": 5}})
        {'beta': 1.0, 'preset.n_iter': 5}
    """
    preset = {f"preset.{name}": value for name, value in settings.get("preset", {}).items()}
    return {name: value for name, value in settings.items() if name != "preset"} | preset


def cell(value: Published | None, digits: int = 2) -> str:
    """A score as a table shows it; a dash where there is none."""
    if value is None:
        return _MISSING
    digits = 0 if abs(value.mean) >= 100 and math.isfinite(value.mean) else digits
    mean = f"{value.mean:.{digits}f}"
    return mean if math.isnan(value.std) else f"{mean} ± {value.std:.{digits}f}"


def paired_lines(spec: Spec, lines: Sequence[Line]) -> list[str]:
    """One line per dataset and size: how far the compared method is from the best other one, split by split."""
    column = spec.columns[0]
    by_place: dict[str, dict[str, dict[Any, float]]] = {}
    for line in lines:
        if column.score in line["scores"].get(column.part, {}) and not isinstance(line["seed"], list):
            place = by_place.setdefault(_place(spec, line), {})
            score = column.factor * line["scores"][column.part][column.score]
            place.setdefault(line["method"], {})[line["split"]] = score
    found: list[str] = []
    for place, methods in by_place.items():
        own = methods.pop(spec.compared, {})
        others = {name: scores for name, scores in methods.items() if scores.keys() == own.keys()}
        if len(own) < 2 or not others:
            continue
        choose = min if column.factor < 0 else max
        best = choose(others, key=lambda name: float(np.mean(list(others[name].values()))))
        gain = np.asarray([own[split] - others[best][split] for split in own])
        better = (gain.mean() < 0) == (column.factor < 0)
        error = float(gain.std(ddof=1) / math.sqrt(len(gain)))
        dataset, size, *_ = json.loads(place)
        where = dataset if size is None else f"{dataset} {size:g}"
        distance = f"{abs(gain.mean()):.3f} ± {error:.3f} {'better than' if better else 'behind'}"
        found.append(f"{where}: {spec.compared} is {distance} {best} in {column.title}, by split.")
    return found
