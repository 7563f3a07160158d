"""Tables in files and on standard input, a batch of rows at a time: CSV of any separator, gzipped or not, and Parquet.

Cells of a CSV file come as the text that they are; `gdkl.cli.columns` makes numbers of them.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import re
import sys
import warnings
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from gdkl.cli.nearest import nearest
from gdkl.numerics import DataError, DataWarning

#: What stands for standard input and output.
STANDARD = "-"

#: Bytes of a CSV file that are parsed at a time, which bounds memory whatever the file's length.
_BLOCK = 2**22
#: A record of more bytes is an open quote.
_LONGEST = 2**26
#: Rows of a Parquet file that are read at a time.
_ROWS = 50_000
#: Bytes from which separator, decimal mark and encoding are told; the header must be in them.
_HEAD = 2**20
#: Records of them that are looked at.
_SNIFFED = 200

_SEPARATORS = ",;\t|"
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+([eE][-+]?\d+)?\s*")
_DECIMAL_POINT = re.compile(r"\s*[-+]?\d+\.\d+([eE][-+]?\d+)?\s*")


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written."""

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"


@dataclass
class TableFile:
    """A table that is open.

    Attributes:
        name: For messages.
        names: Of the columns, in the file's order; spaces around them are taken off.
        dialect: Of a CSV file, whose cells are all text; None for Parquet, whose columns have types.
    """

    name: str
    names: list[str]
    dialect: Dialect | None
    _source: Any = field(repr=False)

    def batches(self) -> Iterator[Any]:
        """Record batches of some rows each; columns by their places, as names may come twice."""
        return self._parquet_batches() if self.dialect is None else self._csv_batches(self.dialect)

    def read(self) -> Any:
        """All rows as one Arrow table.

        Raises:
            DataError: If there are none.
        """
        import pyarrow as pa  # noqa: PLC0415

        batches = list(self.batches())
        if not batches:
            raise DataError(f"{self.name} has a header and no rows: give a table with rows.")
        return pa.Table.from_batches(batches)

    def _parquet_batches(self) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415

        try:
            yield from self._source.iter_batches(batch_size=_ROWS)
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(f"{self.name} is damaged ({str(error).splitlines()[0]}): write it again.") from error

    def _csv_batches(self, dialect: Dialect) -> Iterator[Any]:
        """Parse the file a block at a time, in this thread.

        Arrow's own streaming reader reads ahead in a thread, which aborts the process if it is still at it at the end.
        """
        import pyarrow as pa  # noqa: PLC0415

        rows = 0
        for number, block in enumerate(_blocks_of(self._source, self.name, dialect.encoding, _BLOCK)):
            try:
                table = self._parsed(block, dialect.separator, header=number == 0)
            except pa.ArrowInvalid as error:
                # Arrow counts from 1, and the header with it.
                raise DataError(self._explained(str(error), rows - (number == 0))) from error
            rows += table.num_rows
            yield from table.combine_chunks().to_batches()

    def _parsed(self, block: bytes, separator: str, *, header: bool) -> Any:
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import csv as arrow_csv  # noqa: PLC0415

        numbered = [str(place) for place in range(len(self.names))]
        return arrow_csv.read_csv(
            pa.BufferReader(block),
            read_options=arrow_csv.ReadOptions(
                column_names=numbered, skip_rows_after_names=int(header), use_threads=False, block_size=len(block) + 1
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=separator,
                newlines_in_values=True,
                # In a table of one column an empty line is a missing cell.
                ignore_empty_lines=len(numbered) > 1,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(numbered, pa.string()), strings_can_be_null=False
            ),
        )

    def _explained(self, message: str, rows_before: int) -> str:
        """What Arrow says of a file that it cannot read, in our words."""
        found = re.search(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+): (.*)", message, flags=re.DOTALL)
        if found:
            number, expected, got, text = found.groups()
            where = f"row {rows_before + int(number)}" if number else "a row"
            return (
                f"{self.name}: {where} has {got} cells and the header {expected} ({text[:60]!r}): give every row as "
                "many cells, and quote text that has separators in it."
            )
        if "UTF8" in message:
            return _not_utf8(self.name)
        return f"{self.name} cannot be read ({message.splitlines()[0].rstrip('.')}): check the file."


@contextmanager
def open_table(path: str) -> Generator[TableFile]:
    """Open a table by what it holds, whatever its name ends with.

    Args:
        path: CSV, gzipped CSV or Parquet; ``-`` for standard input.

    Raises:
        DataError: If there is no such file, or it is no table.
    """
    name = "standard input" if path == STANDARD else path
    with _open_bytes(path) as file:
        head = file.read(_HEAD)
        if head.startswith(b"PAR1"):
            # What cannot be sought in is read as a whole: the directory of a Parquet file is at its end.
            yield _parquet(name, file if file.seekable() else io.BytesIO(head + file.read()))
            return
        stream: Any = _rejoined(head, file)
        if head.startswith(b"\x1f\x8b"):
            stream = gzip.GzipFile(fileobj=stream)
            try:
                head = stream.read(_HEAD)
            except (EOFError, OSError, zlib.error) as error:
                raise DataError(f"{name} is damaged or cut short ({error}): copy it again.") from error
            stream = _rejoined(head, stream)
        names, dialect, rows = _sniffed(name, head)
        yield TableFile(name, names, dialect, stream if rows else io.BytesIO())


def _blocks_of(file: BinaryIO, name: str, encoding: str, size: int) -> Iterator[bytes]:
    """Whole records as UTF-8, so many bytes of the file at a time."""
    decoder = None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)()
    begun = b""
    while True:
        try:
            read = file.read(size)
            part = read if decoder is None else decoder.decode(read, final=not read).encode()
        except UnicodeError as error:
            raise DataError(_not_utf8(name)) from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{name} is damaged or cut short ({error}): copy it again.") from error
        if not read:
            break
        begun += part
        end = _end_of_record(begun)
        if end:
            yield begun[:end]
            begun = begun[end:]
        elif len(begun) > _LONGEST:
            raise DataError(f"{name} has a row of more than {_LONGEST // 2**20} MB: close the quotes that it opens.")
    if begun.strip():
        yield begun


def _end_of_record(text: bytes) -> int:
    """Where the last whole record ends: at a line's end with an even number of quotes before it; 0 if there is none."""
    end = text.rfind(b"\n") + 1
    quotes = text.count(b'"', 0, end)
    while end and quotes % 2:
        before = text.rfind(b"\n", 0, end - 1) + 1
        quotes -= text.count(b'"', before, end)
        end = before
    return end


def _open_bytes(path: str) -> Any:
    if path == STANDARD:
        # It stays open: it is not ours.
        return _Unclosed(sys.stdin.buffer)
    try:
        return Path(path).open("rb")
    except OSError as error:
        folder = Path(path).parent
        names = os.listdir(folder) if folder.is_dir() else []
        hint = nearest(Path(path).name, names) or "check the path"
        raise DataError(f"cannot read {path} ({error.strerror or error}): {hint}.") from error


class _Unclosed:
    def __init__(self, file: BinaryIO):
        self._file = file

    def __enter__(self) -> BinaryIO:
        return self._file

    def __exit__(self, *_: object) -> None:
        pass


class _Rejoined(io.RawIOBase):
    """A stream whose first bytes have been read."""

    def __init__(self, head: bytes, rest: BinaryIO):
        self._head, self._rest = io.BytesIO(head), rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._head.read(len(buffer)) or self._rest.read(len(buffer))
        buffer[: len(part)] = part
        return len(part)


def _rejoined(head: bytes, rest: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_Rejoined(head, rest), 2**16))


def _parquet(name: str, source: Any) -> TableFile:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    try:
        found = parquet.ParquetFile(source)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{name} is no Parquet file, or it is damaged: write it again.") from error
    return TableFile(name, [str(column).strip() for column in found.schema_arrow.names], None, found)


def _sniffed(name: str, head: bytes) -> tuple[list[str], Dialect, bool]:
    """Names of the columns, the dialect, and whether there is anything below the header."""
    if head.startswith(b"PK\x03\x04"):
        raise DataError(f"{name} is an Excel workbook or a zip archive: save the sheet as CSV.")
    if head[8:10] == b'{"':
        raise DataError(f"{name} is a model file, and a table is needed here: the model comes first, then the table.")
    text, encoding = _decoded(name, head)
    if not text.strip():
        raise DataError(f"{name} is empty: give a table with the names of its columns in the first line.")
    if text.lstrip().startswith(("{", "[")):
        raise DataError(f"{name} is JSON, it seems: give CSV, gzipped CSV or Parquet.")
    if "\0" in text:
        raise DataError(f"{name} is no table: give CSV, gzipped CSV or Parquet.")
    if len(head) == _HEAD:
        # The last line may be cut short.
        text = text[: text.rfind("\n") + 1]
    found = {separator: _records(name, text, separator) for separator in _SEPARATORS}

    def fits(separator: str) -> tuple[float, int]:
        widths = [len(record) for record in found[separator]]
        agree = sum(width == widths[0] for width in widths) / len(widths)
        return (agree if widths[0] > 1 else 0.0, widths[0])

    separator = max(_SEPARATORS, key=fits)
    header, *rows = found[separator]
    cells = [cell for row in rows for cell in row]
    commas = separator != "," and any(_DECIMAL_COMMA.fullmatch(cell) for cell in cells)
    points = any(_DECIMAL_POINT.fullmatch(cell) for cell in cells)
    dialect = Dialect(separator, "," if commas and not points else ".", encoding)
    return [column.strip() for column in header], dialect, bool(rows)


def _records(name: str, text: str, separator: str) -> list[list[str]]:
    """The first records that are not empty."""
    records = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        found = list(islice((record for record in records if record), _SNIFFED))
    except csv.Error as error:
        raise DataError(f"{name} is no table ({error}): give CSV, gzipped CSV or Parquet.") from error
    return found or [[""]]


def _decoded(name: str, head: bytes) -> tuple[str, str]:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return head.decode("utf-16", errors="ignore"), "utf-16"
    try:
        # The head may end within a character.
        return codecs.getincrementaldecoder("utf-8-sig")().decode(head, final=False), "utf-8"
    except UnicodeDecodeError:
        if b"\0" not in head:
            warnings.warn(f"{name} is no UTF-8: it is read as Western European text.", DataWarning, stacklevel=2)
    try:
        return head.decode("cp1252"), "cp1252"
    except UnicodeDecodeError:
        # Every byte is a character of this one.
        return head.decode("latin-1"), "latin-1"


def _not_utf8(name: str) -> str:
    return f"{name} has text that is no UTF-8: save it as UTF-8."
