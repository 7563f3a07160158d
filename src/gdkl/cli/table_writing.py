"""Tables out, a batch of rows at a time: CSV, gzipped CSV or Parquet by the ending of the name, whole or not there."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from gdkl.cli.arrow import arrow_compute
from gdkl.cli.table_files import STANDARD, Dialect
from gdkl.numerics import DataError, file_beside

#: Writes a batch, given its columns as Arrow arrays.
Write = Callable[[Sequence[Any]], None]

_PARQUET = (".parquet", ".pq")


def is_parquet(path: str) -> bool:
    """Whether a name is that of a Parquet file."""
    return Path(path).suffix.lower() in _PARQUET


def check_output(path: str, option: str = "-o") -> None:
    """Refuse a file that cannot be written, before any work."""
    target = Path(path)
    if not target.parent.is_dir():
        raise DataError(f"the folder {target.parent} does not exist: create it, or give another file with {option}.")
    if target.is_dir():
        raise DataError(f"{path} is a folder: give the name of a file with {option}.")
    try:
        # Trying is the only sure way to know.
        file_beside(target).unlink()
    except OSError as error:
        raise DataError(f"cannot write {path} ({error.strerror or error}): give another with {option}.") from error


@contextmanager
def table_writer(path: str, names: Sequence[str], dialect: Dialect) -> Generator[Write]:
    """Write a table; under its name it appears when it is complete.

    Args:
        path: Where to; ``-`` for standard output.
        names: Of the columns.
        dialect: Of a CSV file; its encoding is UTF-8.

    Example:
        >>> import pyarrow as pa, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with table_writer(f"{folder}/a.csv", ["x", "text"], Dialect()) as write:
        ...         write([pa.array([0.5, None]), pa.array(["a,b", "c"])])
        ...     Path(f"{folder}/a.csv").read_text().splitlines()
        ['x,text', '0.5,"a,b"', ',c']
    """
    if path == STANDARD:
        yield _csv_writer(sys.stdout.buffer, names, dialect)
        sys.stdout.buffer.flush()
        return
    check_output(path)
    target = Path(path)
    temporary = file_beside(target)
    try:
        with temporary.open("wb") as file:
            if is_parquet(path):
                with _parquet_writer(file, names) as write:
                    yield write
            elif target.suffix == ".gz":
                # The level of the gzip command; no name and no time, so that equal tables are equal files.
                with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, filename="", mtime=0) as zipped:
                    yield _csv_writer(cast(BinaryIO, zipped), names, dialect)
            else:
                yield _csv_writer(file, names, dialect)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _csv_writer(file: BinaryIO, names: Sequence[str], dialect: Dialect) -> Write:
    import pyarrow as pa  # noqa: PLC0415  (help does not need it)

    # With the first rows, so that an error before them writes nothing to standard output.
    header = [_lines([pa.array([name]) for name in names], dialect)]

    def write(columns: Sequence[Any]) -> None:
        while header:
            file.write(header.pop())
        file.write(_lines(columns, dialect))

    return write


def _lines(columns: Sequence[Any], dialect: Dialect) -> Any:
    """Lines of a CSV file, joined by Arrow without a Python object per cell."""
    compute = arrow_compute()
    cells = [_cells(column, dialect) for column in columns]
    if len(cells) == 1:
        # An empty line would be no row.
        empty = compute.equal(compute.fill_null(cells[0], _text("")), _text(""))
        cells = [compute.if_else(empty, _text('""'), cells[0])]
    rows = _joined(*cells, separator=dialect.separator)
    ended = _joined(rows, _text("\n"), separator="")
    # The text of all rows lies in one buffer.
    _, offsets, text = ended.buffers()
    ends = memoryview(offsets).cast("b").cast("q")
    return memoryview(text)[ends[ended.offset] : ends[ended.offset + len(ended)]]


def _cells(column: Any, dialect: Dialect) -> Any:
    """A column as text, quoted where it has to be; missing cells are null."""
    import pyarrow as pa  # noqa: PLC0415

    compute = arrow_compute()
    try:
        text = compute.cast(column, pa.large_string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise DataError(f"columns of type {column.type} cannot be written as CSV: write Parquet.") from error
    if pa.types.is_floating(column.type):
        text = compute.if_else(compute.is_finite(column), text, pa.scalar(None, text.type))
        return text if dialect.decimal == "." else compute.replace_substring(text, ".", dialect.decimal)
    # A backslash before the separator makes it a plain character in the pattern.
    special = compute.match_substring_regex(text, f'["\r\n\\{dialect.separator}]')
    if not compute.any(special).as_py():
        return text
    doubled = compute.replace_substring(text, '"', '""')
    return compute.if_else(special, _joined(_text('"'), doubled, _text('"'), separator=""), text)


def _joined(*parts: Any, separator: str) -> Any:
    """Text and columns of text joined row by row; what is null is empty."""
    options: Any = {"null_handling": "replace", "null_replacement": ""}
    return arrow_compute().binary_join_element_wise(*parts, _text(separator), **options)


def _text(value: str) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    return pa.scalar(value, pa.large_string())


@contextmanager
def _parquet_writer(file: BinaryIO, names: Sequence[str]) -> Generator[Write]:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    opened: list[Any] = []

    def write(columns: Sequence[Any]) -> None:
        batch = pa.RecordBatch.from_arrays(list(columns), list(names))
        if not opened:
            opened.append(parquet.ParquetWriter(file, batch.schema))
        opened[0].write_batch(batch)

    try:
        yield write
    finally:
        for writer in opened:
            writer.close()
