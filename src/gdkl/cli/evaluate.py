"""``gdkl evaluate``: a model and a table with the truth in, scores out."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gdkl.cli.answers import BASELINE, AsJson, print_json, print_scores
from gdkl.cli.columns import places
from gdkl.cli.predict import DataPath, ModelPath
from gdkl.cli.table_files import open_table
from gdkl.cli.target import CLASSIFICATION, labels_to_score, numbers_to_score
from gdkl.numerics import DataError

if TYPE_CHECKING:
    from gdkl.cli.table_model import TableModel


def evaluate(
    model_path: ModelPath,
    data: DataPath,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="COLUMN", help="The column with the truth.  [default: that of the fit]"),
    ] = None,
    drop_missing_target: Annotated[
        bool, typer.Option("--drop-missing-target", help="Leave out rows whose target is missing.")
    ] = False,
    report: Annotated[
        str | None,
        typer.Option("--report", metavar="FILE", help="Also write an HTML page: a verdict, and pictures behind it."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score a model on rows whose target is known.

    Numbers: log-likelihood, RMSE, mean absolute error, CRPS, coverage and width of 90 % intervals. Labels: accuracy,
    negative log-likelihood, Brier score, calibration error. Each with its standard error, and beside it the score of
    predicting the mean, or the shares of the classes, of these rows. Rows that the model was fitted to flatter it.

    With --report also a page with a verdict, simpler models fitted to the rows of the fit, and pictures.
    """
    from gdkl.cli.scores import as_json as scores_as_json  # noqa: PLC0415  (models take seconds to import)
    from gdkl.cli.scores import scores_of  # noqa: PLC0415
    from gdkl.cli.table_model import TableModel  # noqa: PLC0415

    if report is not None:
        check_report(report, (model_path, data))
    model = TableModel(model_path)
    model.require_table()
    rows, truth = read_scored_rows(model, data, target, drop_missing_target=drop_missing_target)
    scores = scores_of(model.distribution(rows), truth.to_numpy())
    verdict = None if report is None else written_report(model, rows, truth, report)
    if as_json:
        answer = {"model": model_path, "data": data, "target": truth.name, "task": model.task, "rows": len(truth)}
        judged = {} if verdict is None else {"report": report, "verdict": verdict}
        print_json(answer | judged | {"scores": scores_as_json(scores)})
        return
    name = type(model.estimator).__name__
    print_scores(scores, [f"{name} on {len(truth)} rows of {data}, target {truth.name!r}. {BASELINE}"])
    if verdict is not None:
        typer.echo(f"{verdict} See {report}.")


def check_report(path: str, inputs: tuple[str, str]) -> None:
    """Refuse a page that cannot be written, or would replace what it is about, before any work."""
    from gdkl.cli.table_writing import check_output  # noqa: PLC0415  (Arrow is slow to import)

    check_output(path, "--report")
    if Path(path).exists() and any(Path(one).exists() and Path(path).samefile(one) for one in inputs):
        raise DataError(f"{path} is what is to be judged: give another file with --report.")


def written_report(model: TableModel, rows: Any, truth: Any, path: str) -> str:
    """Write the page, and say its verdict."""
    from gdkl.report import write_report  # noqa: PLC0415  (matplotlib is slow to import)

    command = shlex.join(["gdkl", *sys.argv[1:]])
    return write_report(model.estimator, rows, truth, path, command=command).verdict


def read_scored_rows(model: TableModel, data: str, target: str | None, *, drop_missing_target: bool) -> tuple[Any, Any]:
    """Rows of a file as the model takes them, and their targets as a Series without missing values.

    Raises:
        DataError: If a column is missing, or rows have no target.
    """
    if len(model.targets) > 1:
        raise DataError("the model predicts several targets at once: score it in Python with gdkl.metrics.summary.")
    name = target or model.targets[0]
    with open_table(data) as table:
        (place,) = places([name], table.names, table.name)
        cells = table.read()
        decimal = table.dialect.decimal if table.dialect else "."
        if model.task == CLASSIFICATION:
            truth = labels_to_score(name, cells.column(place), decimal, model.estimator.classes_)
        else:
            truth = numbers_to_score(name, cells.column(place), decimal)
        known = truth.notna().to_numpy()
        missing = len(known) - int(known.sum())
        if missing and not drop_missing_target:
            raise DataError(
                f"{missing} of {len(known)} rows have no {name!r}: leave them out with --drop-missing-target."
            )
        if missing == len(known):
            raise DataError(f"no row of {table.name} has a {name!r}: give rows whose target is known.")
        rows = model.rows(table, cells)
    return rows[known], truth[known].rename(name)
