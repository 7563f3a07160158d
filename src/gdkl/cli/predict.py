"""``gdkl predict``: a model and a table in, the table with predictions out."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from gdkl.cli.answers import AsJson, print_json, size_of
from gdkl.cli.columns import NUMBER, as_numbers, present
from gdkl.cli.failures import say
from gdkl.cli.progress import RowProgress
from gdkl.cli.table_files import STANDARD, Dialect, TableFile, open_table
from gdkl.cli.table_writing import check_output, is_parquet, table_writer
from gdkl.numerics import DataError, OptionError

if TYPE_CHECKING:
    from gdkl.cli.table_model import TableModel

#: Endings of files to write; none is CSV, too.
_ENDINGS = ("", ".csv", ".tsv", ".txt", ".gz", ".parquet", ".pq")

ModelPath = Annotated[str, typer.Argument(metavar="MODEL", help="A model file, as gdkl fit writes it.")]
DataPath = Annotated[str, typer.Argument(metavar="DATA", help="CSV, gzipped CSV or Parquet; - for standard input.")]


def predict(
    model_path: ModelPath,
    data: DataPath,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="CSV, .csv.gz or .parquet, by the name's ending; - for standard output.",
        ),
    ] = STANDARD,
    coverage: Annotated[
        float, typer.Option("--coverage", metavar="PART", help="Probability that the interval of a number has.")
    ] = 0.9,
    as_json: AsJson = False,
) -> None:
    """Predict the rows of a table.

    The output has all columns of the table, then those of the target y: y_mean, y_std, y_lower_90 and y_upper_90 of a
    number, y_predicted and p_CLASS for each class of a label. Columns are matched by their names: their order does not
    matter, and further columns are passed through. Files larger than memory are read, predicted and written a part at
    a time; the output appears under its name when it is complete.
    """
    if not 0 < coverage < 1:
        raise OptionError(f"--coverage {coverage:g} is no probability between 0 and 1: use 0.9, for example.")
    if as_json and output == STANDARD:
        raise OptionError("--json needs -o FILE: standard output has the predictions otherwise.")
    if output == model_path:
        raise OptionError(f"{output} is the model: give another file with -o.")
    if output != STANDARD:
        if Path(output).suffix.lower() not in _ENDINGS:
            raise OptionError(f"{output} has no ending of a table: use .csv, .csv.gz or .parquet.")
        if data != STANDARD and Path(output).exists() and Path(data).exists() and Path(output).samefile(data):
            raise OptionError(f"{output} is the table itself: give another file with -o.")
        check_output(output)
    with open_table(data) as table:
        rows, seconds = _predict_all(model_path, table, output, coverage)
    peak = _peak_memory()
    if as_json:
        print_json(
            {
                "output": output,
                "rows": rows,
                "seconds": round(seconds, 3),
                "rows_per_second": round(rows / seconds),
                "peak_memory_bytes": peak,
            }
        )
        return
    written = "" if output == STANDARD else f" Written to {output}."
    say(
        f"{rows:,} rows predicted in {seconds:.1f} s ({rows / seconds:,.0f} per second), "
        f"memory at most {size_of(peak)}.{written}"
    )


def _peak_memory() -> int:
    """Bytes that this process has had at most."""
    try:
        import resource  # noqa: PLC0415  (Windows has none)
    except ImportError:
        import psutil  # noqa: PLC0415

        return int(cast(Any, psutil.Process().memory_info()).peak_wset)
    # Kilobytes, but for macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _predict_all(model_path: str, table: TableFile, output: str, coverage: float) -> tuple[int, float]:
    """Predict and write; how many rows there were, and how long it took once the model was read."""
    import pyarrow as pa  # noqa: PLC0415  (help does not need them, and models take seconds to import)

    from gdkl.cli.table_model import PART_ROWS, TableModel  # noqa: PLC0415

    model = TableModel(model_path)
    model.require_table()
    started = time.perf_counter()
    new = model.names_of_predictions(coverage)
    if taken := [name for name in new if name in table.names]:
        raise DataError(f"{table.name} has a column {taken[0]!r} already: rename it, or leave it out.")
    dialect, done = table.dialect or Dialect(), 0
    numbers = _numbers(model, table) if is_parquet(output) else set[int]()
    shown = output != STANDARD or not sys.stdout.isatty()
    with (
        table_writer(output, [*table.names, *new], dialect) as write,
        RowProgress("predicted", shown=shown) as progress,
    ):
        for batch in table.batches():
            for start in range(0, batch.num_rows, PART_ROWS):
                part = batch.slice(start, PART_ROWS)
                predicted = model.predictions(model.rows(table, part, done), coverage)
                write([*_passed_on(part, numbers, dialect), *map(pa.array, predicted)])
                done += part.num_rows
                progress.update(done)
        if not done:
            raise DataError(f"{table.name} has a header and no rows: give a table with rows.")
    return done, time.perf_counter() - started


def _numbers(model: TableModel, table: TableFile) -> set[int]:
    """Places of columns of text that Parquet shall have as numbers: those that the model reads as such."""
    if table.dialect is None or model.columns is None:
        return set()
    names = {str(code.name) for code in model.columns if code.kind == NUMBER and not code.left_out}
    return {place for place, name in enumerate(table.names) if name in names}


def _passed_on(batch: Any, numbers: set[int], dialect: Dialect) -> list[Any]:
    """The columns of the input, as they are but for numbers in text."""
    return [
        as_numbers(present(column), dialect.decimal) if place in numbers else column
        for place, column in enumerate(batch.columns)
    ]
