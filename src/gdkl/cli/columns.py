"""Cells of a file as columns of numbers, dates and text: guessed for a fit, as the model has them for a prediction."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gdkl.cli.arrow import arrow_compute
from gdkl.cli.nearest import or_known
from gdkl.numerics import DataError, DataWarning, OptionError

if TYPE_CHECKING:
    import pandas as pd

    from gdkl.inputs import ColumnCode

NUMBER, CATEGORY, DATE = "number", "category", "date"

#: What a column may be read as.
KINDS = (NUMBER, CATEGORY, DATE)

#: Text that pandas, too, reads as a missing cell.
MISSING = (
    *("", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "-NaN", "-nan"),
    *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN"),
)
#: Text that stands for a missing cell among numbers and dates.
MARKS = ("?", "-", "--", ".", "..")

#: Numbers as files should have them; dates in another order; numbers with a sign of money, thousands or a unit.
_PLAIN = r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"
_OTHER_DATE = r"^\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\b"
_DRESSED = r"^[-+]?\s?[$€£¥]?\s?[-+]?\d[\d.,'\s]*\s?([$€£¥%]|[A-Za-z]{1,3})?$"
_ISO_DATE = r"^\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}([.,]\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?$"


def is_text(cells: Any) -> bool:
    """Whether an Arrow column holds text."""
    from pyarrow import types  # noqa: PLC0415  (help does not need it)

    return bool(types.is_string(cells.type) or types.is_large_string(cells.type) or types.is_string_view(cells.type))


def present(cells: Any) -> Any:
    """Text without spaces around it; missing cells are null."""
    import pyarrow as pa  # noqa: PLC0415

    compute = arrow_compute()
    trimmed = compute.utf8_trim_whitespace(cells)
    missing = compute.is_in(trimmed, value_set=pa.array(MISSING, trimmed.type))
    return compute.if_else(missing, pa.scalar(None, trimmed.type), trimmed)


def as_numbers(cells: Any, decimal: str = ".") -> Any:
    """What `present` returned as an Arrow column of numbers, "true" as 1; None if a cell is none."""
    import pyarrow as pa  # noqa: PLC0415

    compute = arrow_compute()
    if decimal != ".":
        cells = compute.replace_substring(cells, pattern=decimal, replacement=".")
    try:
        return compute.cast(cells, pa.float64())
    except pa.ArrowInvalid:
        cells = _unmarked(cells)
    lower = compute.utf8_lower(cells)
    for word, number in (("true", "1"), ("false", "0")):
        cells = compute.if_else(compute.equal(lower, word), pa.scalar(number, cells.type), cells)
    try:
        return compute.cast(cells, pa.float64())
    except pa.ArrowInvalid:
        return None


def as_dates(cells: Any) -> pd.Series | None:
    """What `present` returned as dates, if all are as ISO 8601 has them: 2026-01-31, or with a time behind it."""
    import pandas as pd  # noqa: PLC0415

    compute = arrow_compute()
    cells = _unmarked(cells)
    dates = compute.all(compute.match_substring_regex(cells, _ISO_DATE))
    # None where all cells are missing.
    if dates.as_py() is False:
        return None
    try:
        return pd.to_datetime(cells.to_pandas(), format="ISO8601", utc=True)
    except ValueError:
        return None


def _unmarked(cells: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    compute = arrow_compute()
    marked = compute.is_in(cells, value_set=pa.array(MARKS, cells.type))
    return compute.if_else(marked, pa.scalar(None, cells.type), cells)


def first_that_is_no_number(cells: Any, decimal: str = ".") -> tuple[int, str]:
    """Row, counted from 1, and text of the first cell that is no number."""
    for row, text in enumerate(present(cells).to_pylist(), start=1):
        shown = (text or "0").replace(decimal, ".")
        if shown not in MARKS and shown.lower() not in ("true", "false") and not _is_number(shown):
            return row, str(text)
    return 0, ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    # Python takes underscores, which are no part of a number in a file.
    return re.fullmatch(r"[-+.\deEinfatyINFATY]+", text) is not None


def guessed(name: str, cells: Any, decimal: str, kind: str | None = None) -> Any:
    """A column of a file that a model is fitted to: numbers if all cells are, else dates if all are, else text.

    Args:
        name: Of the column.
        cells: An Arrow column.
        decimal: The decimal mark.
        kind: What the user wants it to be read as.
    """
    import pyarrow as pa  # noqa: PLC0415

    compute = arrow_compute()
    if not is_text(cells):
        return compute.cast(cells, pa.string()).to_pandas() if kind == CATEGORY else cells.to_pandas()
    text = present(cells)
    if kind in (None, NUMBER):
        numbers = as_numbers(text, decimal)
        if numbers is not None:
            return _finite(name, numbers).to_pandas()
        if kind == NUMBER:
            row, found = first_that_is_no_number(cells, decimal)
            raise DataError(f"column {name!r} is no number in row {row} ({found!r}): read it as a category.")
    if kind in (None, DATE):
        dates = as_dates(text)
        if dates is not None:
            return dates
        if kind == DATE:
            raise DataError(f"column {name!r} has cells that are no dates as 2026-01-31: read it as a category.")
    if kind is None:
        _warn_of_odd_cells(name, text, decimal)
    return text.to_pandas()


def _finite(name: str, numbers: Any, first_row: int = 0) -> Any:
    """Numbers as they are; infinite ones are refused, by their row in the file."""
    compute = arrow_compute()
    infinite = compute.index(compute.is_inf(numbers), value=True).as_py()
    if infinite >= 0:
        raise DataError(
            f"column {name!r} has an infinite number in row {first_row + infinite + 1}: correct the cell, or make it "
            "empty."
        )
    return numbers


def _warn_of_odd_cells(name: str, text: Any, decimal: str) -> None:
    """Say so where most cells of a column of text look like numbers or dates."""
    compute = arrow_compute()
    cells = compute.drop_null(text)
    for pattern, what, remedy in (
        (_PLAIN.replace(r"\.", re.escape(decimal)), "are numbers", "correct the others, or make them empty"),
        (_OTHER_DATE, "look like dates", "write them as 2026-01-31"),
        (_DRESSED, "look like numbers", "write them without units and separators of thousands"),
    ):
        fits = compute.match_substring_regex(cells, pattern)
        count = compute.sum(fits).as_py() or 0
        if 2 * count > len(cells):
            first = compute.index(fits, value=False).as_py()
            others = f" (not {cells[first].as_py()!r})" if first >= 0 else ""
            told = f"Column {name!r} is read as text, though {count} of {len(cells)} cells {what}{others}"
            warnings.warn(f"{told}: {remedy}.", DataWarning, stacklevel=4)
            return


def as_fitted(code: ColumnCode, cells: Any, decimal: str, first_row: int = 0) -> Any:
    """A column of new rows as the model's encoder wants it.

    Args:
        code: What the model knows of the column.
        cells: An Arrow column.
        decimal: The decimal mark.
        first_row: Number of the first row, where these are a part of a file.

    Raises:
        DataError: If there is text where the model was fitted to numbers or dates.
    """
    import pandas as pd  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    compute = arrow_compute()
    words = [level for level in code.levels if isinstance(level, str)]
    if not is_text(cells):
        simple = pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type) or pa.types.is_boolean(cells.type)
        return compute.cast(cells, pa.string()).to_pandas() if words and simple else cells.to_pandas()
    text = present(cells)
    if code.levels:
        if words:
            return text.to_pandas()
        # Levels that were numbers; text that is none is a level that fit has not seen.
        return pd.to_numeric(text.to_pandas(), errors="coerce")
    if code.kind == NUMBER:
        numbers = as_numbers(text, decimal)
        if numbers is not None:
            return _finite(str(code.name), numbers, first_row).to_pandas()
        row, found = first_that_is_no_number(cells, decimal)
        raise DataError(
            f"column {code.name!r} has text in row {first_row + row} ({found!r}), and the model was fitted to numbers: "
            "correct the cell, or make it empty."
        )
    dates = as_dates(text) if code.kind == DATE else _durations(text)
    if dates is None:
        raise DataError(
            f"column {code.name!r} has text, and the model was fitted to a {code.kind}: give "
            f"{'dates as 2026-01-31' if code.kind == DATE else 'durations as 2 days 03:00:00'}, or empty cells."
        )
    return dates


def _durations(text: Any) -> Any:
    import pandas as pd  # noqa: PLC0415

    try:
        return pd.to_timedelta(text.to_pandas())
    except ValueError:
        return None


def places(wanted: Sequence[str], names: Sequence[str], where: str) -> list[int]:
    """Places of columns in a file, by their names.

    Raises:
        DataError: If a name is missing, or there twice; it names the nearest column there is.
    """
    missing = [name for name in wanted if name not in names]
    if missing:
        listed = ", ".join(repr(name) for name in missing[:5]) + (" ..." if len(missing) > 5 else "")
        plural = "s" if len(missing) > 1 else ""
        raise DataError(f"{where} has no column{plural} {listed}: {or_known(missing[0], names)}.")
    for name in wanted:
        if list(names).count(name) > 1:
            raise DataError(f"{where} has two columns with the name {name!r}: rename one.")
    return [list(names).index(name) for name in wanted]


def check_kind(name: str, kind: str) -> None:
    """Refuse what no column can be read as."""
    if kind not in KINDS:
        raise OptionError(f"column {name!r} cannot be read as {kind!r}: use {', '.join(KINDS)} or drop.")
