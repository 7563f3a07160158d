"""``gdkl init``: the settings of a fit, written down with the columns found and the choices made."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gdkl.cli.columns import CATEGORY, DATE, KINDS, NUMBER
from gdkl.cli.fit_settings import DROP, ESTIMATORS, FitSettings
from gdkl.cli.predict import DataPath
from gdkl.cli.table_files import STANDARD, open_table
from gdkl.numerics import DataError

if TYPE_CHECKING:
    from gdkl.cli.training_table import TrainingTable
    from gdkl.inputs import ColumnCode


def init(
    data: DataPath,
    target: Annotated[
        str | None, typer.Option("--target", metavar="COLUMN", help="The column to predict.  [default: the last]")
    ] = None,
) -> None:
    """Print settings for gdkl fit --config: TOML with a comment for every choice and every column.

    Edit what is wrong: columns can be read as another kind, or dropped. Paths are relative to where gdkl fit is run.
    """
    from gdkl.cli.training_table import read_training_table  # noqa: PLC0415  (help does not need it)

    if data == STANDARD:
        raise DataError("settings name a file, and standard input has no name: give one.")
    guessed = target is None
    if guessed:
        with open_table(data) as table:
            target = next((name for name in reversed(table.names) if name), "")
    settings = FitSettings(data=data, target=target or "", drop_missing_target=True)
    table = read_training_table(settings)
    typer.echo("\n".join(_lines(settings, table, guessed=guessed)))


def _lines(settings: FitSettings, table: TrainingTable, *, guessed: bool) -> list[str]:
    from gdkl.inputs import ColumnCode  # noqa: PLC0415  (torch takes seconds to import)

    with warnings.catch_warnings():
        # What they say stands in the comments.
        warnings.simplefilter("ignore")
        codes = [ColumnCode.fit(name, table.frame[name]) for name in table.frame.columns]
    estimators = ", ".join(name for name, tasks in ESTIMATORS.items() if table.target.task in tasks)
    missing = f"{table.missing} rows have no target" if table.missing else "all rows have a target"
    rows = [
        ("data", settings.data, f"{len(table.frame)} rows with a target"),
        ("target", settings.target, "the last column: change it if it is another" if guessed else ""),
        ("task", table.target.task, table.target.reason),
        ("model", settings.model, "the file to write"),
        ("estimator", settings.estimator, estimators),
        ("seed", settings.seed, "of held-out rows and weights"),
        ("holdout", settings.holdout, "part of the rows that is held out and scored"),
        ("refit", settings.refit, "whether the saved model is fitted to all rows once it is scored"),
        ("drop_missing_target", bool(table.missing), missing),
    ]
    kinds = [DROP if code.left_out else code.kind for code in codes]
    abouts = [_about(code, table.frame[code.name]) for code in codes]
    # What only Parquet can hold, such as an order of categories, is read as it is, whatever is said here.
    marks = ["" if kind in (*KINDS, DROP) else "# " for kind in kinds]
    described = [
        (mark + json.dumps(code.name, ensure_ascii=False), _toml(kind), about)
        for mark, code, kind, about in zip(marks, codes, kinds, abouts, strict=True)
    ]
    return [
        "# Settings of gdkl fit --config FILE. Options of the command line come first.",
        *_aligned([(name, _toml(value), about) for name, value, about in rows]),
        "",
        "[options]  # of the estimator, such as n_iter = 200 or preset.learning_rate = 0.02",
        "",
        '[columns]  # "number", "category", "date" (as 2026-01-31), or "drop" to leave a column out',
        *_aligned(described),
    ]


def _aligned(rows: list[tuple[str, str, str]]) -> list[str]:
    """Settings with their comments below each other."""
    settings = [f"{name} = {value}" for name, value, _ in rows]
    width = min(max(map(len, settings), default=0), 50)
    comments = [f"  # {' '.join(about.split())}" if about else "" for *_, about in rows]
    return [f"{text:{width}}{comment}".rstrip() for text, comment in zip(settings, comments, strict=True)]


def _toml(value: Any) -> str:
    """Text, numbers and truth values are written in TOML as in JSON."""
    return json.dumps(value, ensure_ascii=False)


def _about(code: ColumnCode, column: Any) -> str:
    present = column.dropna()
    missing = f", {len(column) - len(present)} missing" if len(present) < len(column) else ""
    if code.left_out:
        return f"left out: {code.left_out}{missing}"
    if code.kind == CATEGORY:
        levels = present.nunique()
        shown = ", ".join(map(str, code.levels[:5])) + (", ..." if len(code.levels) > 5 else "")
        rare = f" ({levels - len(code.levels)} others are rare)" if levels > len(code.levels) else ""
        return f"{levels} levels: {shown}{rare}{missing}"
    if code.kind == NUMBER:
        return f"{present.nunique()} values from {present.min():g} to {present.max():g}{missing}"
    if code.kind != DATE:
        return f"{code.kind}{missing}"
    return f"from {present.min():%Y-%m-%d} to {present.max():%Y-%m-%d}{missing}"
