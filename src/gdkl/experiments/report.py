"""What a folder of results says, beside what the paper has: sections of tables, before anybody draws or writes them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path

import numpy as np

from gdkl.experiments.catalogue import SPECS
from gdkl.experiments.results import Line, Results, grouped
from gdkl.experiments.spec import Column, Size, Spec
from gdkl.experiments.summary import Rows, summaries
from gdkl.experiments.tables import Published, flat, paper_figure, paper_of_line, score_of
from gdkl.numerics import DataError

#: After the point in the paper's tables, whatever the score.
PAPER_DIGITS = 2

#: Settings that are listed in words; a line has all of them.
_SETTINGS_SHOWN = 6


@dataclass(frozen=True)
class Entry:
    """A cell of a table: ours, if it was run, and the paper's, if it has it.

    Attributes:
        found: Mean and standard deviation over the runs.
        runs: How many there are.
        wanted: How many are declared.
        paper: The paper's.
        best: Whether no other method here has a better mean.
        digits: After the point.
    """

    found: Published | None
    runs: int
    wanted: int
    paper: Published | None
    best: bool = False
    digits: int = 2


@dataclass(frozen=True)
class Sheet:
    """A table: a row per method.

    Attributes:
        title: Dataset, and score where columns are numbers of rows.
        columns: Headings.
        rows: A name, what it is, and the entries of the columns.
        aside: Whether the paper has nothing like it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, str, Sequence[Entry]]]
    aside: bool = False


@dataclass(frozen=True)
class Section:
    """An experiment in the report.

    Attributes:
        spec: The experiment.
        lines: Its lines with the declared settings.
        sheets: Tables of these.
        quick: Lines of its small part, and tables of these.
        others: Lines with other settings, on validation rows, or means over seeds: a heading and rows.
        summaries: Of a benchmark over many tables: means and tables won, by title.
        absent: Datasets without any run: what to put where, for those that no download provides, and the command.
        differences: What differs from the paper, and why.
    """

    spec: Spec
    lines: Sequence[Line]
    sheets: Sequence[Sheet]
    quick: Sequence[Line]
    quick_sheets: Sequence[Sheet]
    others: Rows
    summaries: Sequence[tuple[str, Rows]] = ()
    absent: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    differences: Sequence[str] = ()

    @property
    def cells(self) -> tuple[int, int]:
        """How many of the declared cells were run, and how many there are."""
        keys = _declared_keys(self.spec, ())
        return len(keys & {line["key"] for line in self.lines}), len(keys)


def read_folder(folder: Path) -> tuple[dict[str, list[Line]], list[str]]:
    """Lines of all result files of a folder by experiment, and the names of files that hold none."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: give the one that 'gdkl reproduce' wrote to (--output).")
    known = {spec.runs for spec in SPECS.values()}
    lines: dict[str, list[Line]] = {}
    foreign: list[str] = []
    for path in sorted(folder.glob("*.jsonl")):
        own = [line for line in Results(path).lines() if "key" in line and line.get("experiment") in known]
        for line in own:
            lines.setdefault(line["experiment"], []).append(line)
        foreign += [] if own else [path.name]
    if not lines:
        raise DataError(f"{folder} holds no results: run 'gdkl reproduce NAME --output {folder}' first.")
    return lines, foreign


def sections(lines: Mapping[str, Sequence[Line]]) -> list[Section]:
    """A section per experiment: those of the paper, run or not, and our own that were run."""
    return [
        section(spec, lines.get(spec.runs, ()))
        for spec in SPECS.values()
        if spec.paper is not None or lines.get(spec.runs)
    ]


def section(spec: Spec, lines: Sequence[Line]) -> Section:
    """One experiment's part of the report."""
    own = [line for line in lines if line["method"] in spec.methods and line["dataset"] in spec.datasets]
    keys = _declared_keys(spec, own)
    declared = [line for line in own if line["key"] in keys]
    quick = [line for line in own if line["settings"].get("quick")]
    rest = [line for line in own if line["key"] not in keys and not line["settings"].get("quick")]
    benchmark = bool(spec.reference)
    return Section(
        spec,
        declared,
        () if benchmark else sheets(spec, declared),
        quick,
        sheets(spec, quick, quick=True) if quick else (),
        _others(spec, rest),
        summaries(spec, declared) if benchmark and declared else (),
        {} if benchmark else _absent(spec, declared),
        differences().get(spec.name, ()),
    )


@cache
def differences() -> Mapping[str, Sequence[str]]:
    """What differs from the paper and why, by experiment; "all" for what holds for every one."""
    import tomllib  # noqa: PLC0415

    text = files("gdkl.experiments").joinpath("differences.toml").read_text(encoding="utf-8")
    return {name: entry["notes"] for name, entry in tomllib.loads(text).items()}


def _declared_keys(spec: Spec, lines: Iterable[Line]) -> set[str]:
    """Keys of the declared cells, with as many further seeds as were run."""
    seeds = [line["seed"] if spec.draws else line["split"] for line in lines]
    last = max((seed for seed in seeds if isinstance(seed, int)), default=0)
    settings = {name: spec.settings(name, {}) for name in spec.methods}
    wanted = max(spec.seeds, last + 1 - spec.first_seed)
    return {cell.key for cell in spec.cells(spec.datasets, settings, seeds=wanted)}


def sheets(spec: Spec, lines: Sequence[Line], *, quick: bool = False) -> list[Sheet]:
    """Tables of an experiment: with sizes one per dataset and score, without one per dataset.

    A table without any run is shown if the paper has figures for it, but for the ``quick`` part, which says so.
    """
    by_cell: dict[tuple[str, Size, str], list[Line]] = {}
    for line in lines:
        by_cell.setdefault((line["dataset"], line["size"], line["method"]), []).append(line)
    found: list[Sheet] = []
    note = ", quick" if quick else ""
    for dataset in spec.datasets:
        if spec.sizes:
            for column in spec.columns:
                heads = [f"{size:g}" for size in spec.sizes]
                places = [(column, size) for size in spec.sizes]
                found.append(_sheet(spec, by_cell, dataset, f"{dataset}: {column.title}{note}", heads, places))
        else:
            heads = [column.title for column in spec.columns]
            places = [(column, None) for column in spec.columns]
            found.append(_sheet(spec, by_cell, dataset, f"{dataset}{note}", heads, places))
    entries = [(sheet, [entry for *_, row in sheet.rows for entry in row]) for sheet in found]
    return [sheet for sheet, own in entries if any(entry.found or (entry.paper and not quick) for entry in own)]


def _sheet(
    spec: Spec,
    by_cell: Mapping[tuple[str, Size, str], Sequence[Line]],
    dataset: str,
    title: str,
    heads: Sequence[str],
    places: Sequence[tuple[Column, Size]],
) -> Sheet:
    names = [name for name in spec.methods if any(not c.methods or name in c.methods for c, _ in places)]
    rows = {
        name: [
            _entry(spec, by_cell.get((dataset, size, name), ()), column, dataset, size, name) for column, size in places
        ]
        for name in names
    }
    for index, (column, _) in enumerate(places):
        own = {name: row[index].found for name, row in rows.items()}
        means = [value.mean for value in own.values() if value is not None]
        # The best on its own training rows is who overfits most.
        if len(means) < 2 or not column.better or column.part == "train":
            continue
        best = max(means) if column.better > 0 else min(means)
        for name, value in own.items():
            if value is not None and value.mean == best:
                entry = rows[name][index]
                rows[name][index] = Entry(entry.found, entry.runs, entry.wanted, entry.paper, True, entry.digits)
    aside = all(_is_view(column) for column, _ in places)
    return Sheet(title, heads, [(name, spec.methods[name].about, row) for name, row in rows.items()], aside)


def _entry(spec: Spec, lines: Sequence[Line], column: Column, dataset: str, size: Size, method: str) -> Entry:
    wanted = spec.seeds * max(1, len(spec.draws))
    paper = paper_figure(spec, column, dataset, size, method)
    return Entry(mean_and_deviation(lines, column), len(lines), wanted, paper, digits=column.digits)


def mean_and_deviation(lines: Iterable[Line], column: Column) -> Published | None:
    """Over the lines that have the score: its mean and standard deviation, which is NaN for one line."""
    scores = [score_of(line, column) for line in lines]
    values = np.asarray([score for score in scores if score is not None])
    if not len(values):
        return None
    return Published(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else math.nan)


def _absent(spec: Spec, lines: Sequence[Line]) -> dict[str, tuple[str, str]]:
    from gdkl.datasets import Origin, describe, names  # noqa: PLC0415

    run = {line["dataset"] for line in lines}
    found: dict[str, tuple[str, str]] = {}
    for dataset in spec.datasets:
        info = describe(dataset) if dataset in names() else None
        page = getattr(info, "page", "")
        by_hand = ""
        if info is not None and info.origin is Origin.FILE:
            file = info.file_names + (f" ({page})" if page else "")
            by_hand = f"put {file} into the folder of GDKL_DATA, then "
        if dataset not in run:
            found[dataset] = by_hand, f"gdkl reproduce {spec.name} --datasets {dataset}"
    return found


def _others(spec: Spec, lines: Sequence[Line]) -> Rows:
    """A row per group of lines with the same settings, named by what they differ in among those of their method."""

    def identity(line: Line) -> str:
        members = len(line["seed"]) if isinstance(line["seed"], list) else 0
        network = line["seed"] if not spec.draws and spec.model_seed is not None else None
        draw = line["split"] if spec.draws else None
        fields = [line[name] for name in ("method", "settings", "dataset", "size", "scored")]
        return json.dumps([*fields, draw, network, members], sort_keys=True)

    told = _told_settings(lines)
    rows: dict[str, dict[str, str]] = {}
    for own in grouped(lines, identity):
        first = own[0]
        row = {"data": first["dataset"], "rows": "" if first["size"] is None else f"{first['size']:g}"}
        ensemble = f", mean of {len(first['seed'])}" if isinstance(first["seed"], list) else ""
        row["method"] = first["method"] + ensemble
        row["settings"] = told[_settings_key(first)] + _what_else(spec, first)
        row["runs"] = str(len(own))
        for column in spec.columns:
            if not _is_view(column):
                row[column.title] = text(mean_and_deviation(own, column), column.digits)
                paper = paper_of_line(spec, first, column)
                row |= {f"paper's {column.title}": text(paper, PAPER_DIGITS) if paper else ""} if column.paper else {}
        rows[identity(first)] = row
    return rows


def _is_view(column: Column) -> bool:
    """Whether it is of averages over views of test images, which the paper does not have."""
    return column.part in ("mirrored", "shifted")


def _what_else(spec: Spec, line: Line) -> str:
    """What beside the settings makes a line another one than the declared."""
    parts = [] if line["scored"] == "test" else ["scored on validation rows"]
    if spec.draws and line["split"] not in spec.draws:
        parts.append(f"draw {line['split']}")
    if not spec.draws and spec.model_seed is not None and line["seed"] != spec.model_seed:
        parts.append(f"network {line['seed']}")
    return "".join(f"; {part}" for part in parts)


def _settings_key(line: Line) -> str:
    return json.dumps([line["method"], line["versions"].get("gdkl"), line["settings"]], sort_keys=True)


def _told_settings(lines: Sequence[Line]) -> dict[str, str]:
    """Settings in words: those in which the groups of one method and version differ, or all if there is one group."""
    told: dict[str, str] = {}
    for own in grouped(lines, lambda line: json.dumps([line["method"], line["versions"].get("gdkl")])):
        groups = {_settings_key(line): flat(line["settings"]) for line in own}
        names = list(dict.fromkeys(name for group in groups.values() for name in group))
        varying = [name for name in names if len({json.dumps(group.get(name)) for group in groups.values()}) > 1]
        for key, group in groups.items():
            shown = [f"{name} {_word(group[name])}" for name in varying or names if name in group]
            shown = shown or [f"without {', '.join(varying)}" if varying else "no settings"]
            more = f", and {len(shown) - _SETTINGS_SHOWN} more" if len(shown) > _SETTINGS_SHOWN else ""
            version = own[0]["versions"].get("gdkl", "?")
            told[key] = f"version {version}: {', '.join(shown[:_SETTINGS_SHOWN])}{more}"
    return told


def _word(value: object) -> str:
    return json.dumps(value) if isinstance(value, (bool, list)) else f"{value}"


def text(value: Published | None, digits: int) -> str:
    """A figure as the report writes it.

    Example:
        >>> text(Published(-2.256, 0.08), 2), text(Published(95.7, math.nan), 1), text(None, 2)
        ('−2.26 ± 0.08', '95.7', '–')
    """
    if value is None:
        return "–"
    digits = 0 if abs(value.mean) >= 100 and math.isfinite(value.mean) else digits
    mean = f"{value.mean:.{digits}f}".replace("-", "−")
    return mean if math.isnan(value.std) else f"{mean} ± {value.std:.{digits}f}"


def compared_with_paper(found: Section) -> tuple[int, int, int]:
    """Of GDKL's cells for which the paper has a figure: how many there are, were run, and are at least as good.

    A cell is at least as good if ours is not worse than the paper's by more than the paper's standard deviation.
    """
    spec = found.spec
    count = run = good = 0
    for dataset, size, column in product(spec.datasets, spec.sizes or (None,), spec.columns):
        paper = paper_figure(spec, column, dataset, size, "gdkl")
        if paper is None or not column.better or column.part not in ("test", "seconds"):
            continue
        own = [
            line for line in found.lines if (line["dataset"], line["size"], line["method"]) == (dataset, size, "gdkl")
        ]
        value = mean_and_deviation(own, column)
        count += 1
        run += value is not None
        if value is not None:
            # The paper gives two digits, or one of an accuracy: its rounding is no difference.
            rounding = 0.05 if column.factor == 100 else 0.005
            good += column.better * (value.mean - paper.mean) >= -(paper.std + rounding)
    return count, run, good


def overview_rows(found: Iterable[Section]) -> Rows:
    """A row per experiment: where the paper has it, what was run, and how GDKL stands beside the paper's."""
    rows: dict[str, dict[str, str]] = {}
    for one in found:
        count, run, good = compared_with_paper(one)
        rows[one.spec.name] = {
            "in the paper": one.spec.paper.where if one.spec.paper else "",
            "cells run": "{} of {}".format(*one.cells),
            "GDKL's run, of those in the paper": f"{run} of {count}" if count else "",
            "at least as good": f"{good} of {run}" if run else "",
        }
    return rows
