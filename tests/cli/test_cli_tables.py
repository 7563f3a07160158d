"""Tables in and out of files: separators, encodings, types of columns, blocks, quoting, and what is refused."""

from __future__ import annotations

import csv
import gzip
import io
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdkl.cli import table_files
from gdkl.cli.columns import as_fitted, guessed, places
from gdkl.cli.table_files import Dialect, open_table
from gdkl.cli.table_writing import table_writer
from gdkl.cli.target import CLASSIFICATION, REGRESSION, labels_to_score, read_target
from gdkl.cli.training_table import held_out_rows
from gdkl.inputs import ColumnCode
from gdkl.numerics import DataError, DataWarning, GdklError


def damaged_parquet() -> bytes:
    """A file whose directory is right and whose cells are not."""
    written = io.BytesIO()
    pd.DataFrame({"x": [f"cell {k}" for k in range(500)]}).to_parquet(written)
    content = bytearray(written.getvalue())
    content[40:2000] = b"\xff" * 1960
    return bytes(content)


def cells_of(path: Path) -> tuple[list[str], list[list[str]]]:
    with open_table(str(path)) as table:
        rows = [list(row.values()) for batch in table.batches() for row in batch.to_pylist()]
        return table.names, rows


@pytest.mark.parametrize(
    ("content", "names", "rows"),
    [
        (b'a,b\n1,"x\ny"\n 2 ,\n', ["a", "b"], [["1", "x\ny"], [" 2 ", ""]]),
        (b"\xef\xbb\xbfa , b\r\n1,2\r\n\r\n3,4", ["a", "b"], [["1", "2"], ["3", "4"]]),
        (b"a\n1\n\n3\n", ["a"], [["1"], [""], ["3"]]),
        (b"a\tb,c\n1\t2\n", ["a", "b,c"], [["1", "2"]]),
        (b"a|b\n1|2\n", ["a", "b"], [["1", "2"]]),
        (b'"a\nb";c\n"1;2";"say ""x"""\n', ["a\nb", "c"], [["1;2", 'say "x"']]),
        ("a,b\ncafé,1\n".encode("utf-16"), ["a", "b"], [["café", "1"]]),
        (gzip.compress(b"a,b\n1,2\n") + gzip.compress(b"3,4\n"), ["a", "b"], [["1", "2"], ["3", "4"]]),
        (b"a,b\n", ["a", "b"], []),
        (b"a,b", ["a", "b"], []),
    ],
)
def test_csv_is_read_cell_by_cell(tmp_path: Path, content: bytes, names: list[str], rows: list[list[str]]) -> None:
    (tmp_path / "table").write_bytes(content)
    assert cells_of(tmp_path / "table") == (names, rows)


def test_text_of_windows_is_read_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("preis;ort\n3 €;Köln\n".encode("cp1252"))
    with pytest.warns(DataWarning, match="no UTF-8"):
        assert cells_of(tmp_path / "a.csv") == (["preis", "ort"], [["3 €", "Köln"]])


NO_TABLES = {
    "is empty": b"",
    "Excel": b"PK\x03\x04abc",
    "is JSON": b'[{"a": 1}]',
    "is no table": b"a\0b",
    "no Parquet file": b"PAR1 cut short",
    "is damaged": damaged_parquet(),
    "is a model file": b'\x10\0\0\0\0\0\0\0{"a":1}',
    "damaged or cut short": gzip.compress(b"a,b\n1,2\n")[:-9],
    "row 2 has 3 cells and the header 2": b"a,b\n1,2\n3,4,5\n",
    "no UTF-8": b"a,b\n" + b"1,2\n" * 300_000 + b"3,\xff\n",
}


@pytest.mark.parametrize("told", NO_TABLES)
def test_what_is_no_table_is_refused(tmp_path: Path, told: str) -> None:
    (tmp_path / "a.csv").write_bytes(NO_TABLES[told])
    with pytest.raises(DataError, match=told) as caught:
        cells_of(tmp_path / "a.csv")
    assert "\n" not in str(caught.value)


@given(st.lists(st.lists(st.text('ab,;"\n ', max_size=5), min_size=2, max_size=2), max_size=8), st.integers(1, 30))
def test_blocks_of_any_size_give_the_same_cells(rows: list[list[str]], block: int) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([["x", "y"], *rows])
    found = [
        record
        for part in table_files._blocks_of(io.BytesIO(text.getvalue().encode()), "name", "utf-8", block)
        for record in csv.reader(io.StringIO(part.decode(), newline=""))
    ]
    assert found == [["x", "y"], *rows]


def test_a_row_in_a_later_block_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "_BLOCK", 16)
    (tmp_path / "a.csv").write_text("a,b\n" + "10,20\n" * 9 + "1,2,3\n")
    with pytest.raises(DataError, match="row 10 has 3 cells"):
        cells_of(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("texts", "kind", "decimal", "expected"),
    [
        (["1", " 2.5 ", "-3e2"], None, ".", [1.0, 2.5, -300.0]),
        (["1,5", "", "NA"], None, ",", [1.5, np.nan, np.nan]),
        (["0.1", "?", "7"], None, ".", [0.1, np.nan, 7.0]),
        (["true", "FALSE", "null"], None, ".", [1.0, 0.0, np.nan]),
        (["7", "8", "n/a"], "category", ".", ["7", "8", None]),
        (["x", "?", "None"], None, ".", ["x", "?", None]),
        (["2026-01-31", "2026-02-01T06:00", ""], None, ".", ["2026-01-31", "2026-02-01 06:00", None]),
        (["", "NA"], None, ".", [np.nan, np.nan]),
    ],
)
def test_columns_of_text_become_what_they_hold(
    texts: list[str], kind: str | None, decimal: str, expected: list[object]
) -> None:
    found = guessed("x", pa.chunked_array([texts]), decimal, kind)
    if texts[0].startswith("2026"):
        assert found.tolist() == [pd.Timestamp(text, tz="UTC") if text else pd.NaT for text in expected]
    else:
        pd.testing.assert_series_equal(found, pd.Series(expected), check_dtype=False, check_names=False)


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["1", "2.5", "n/k", "4"], r"'x' is read as text, though 3 of 4 cells are numbers \(not 'n/k'\)"),
        (["31/01/2026", "1.2.2026"], "2 of 2 cells look like dates: write them as 2026-01-31"),
        (["$1,200", "3 €", "17%", "4 kg"], "4 of 4 cells look like numbers"),
    ],
)
def test_text_that_may_be_meant_otherwise_is_told(texts: list[str], told: str) -> None:
    with pytest.warns(DataWarning, match=told):
        assert guessed("x", pa.array(texts), ".").tolist() == texts
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guessed("x", pa.array(texts), ".", "category")
        guessed("x", pa.array(["4wd", "fwd", "1", "rwd"]), ".")


def test_every_number_is_read_to_the_last_bit() -> None:
    values = np.concatenate([np.random.default_rng(0).normal(size=500) * 10.0 ** np.arange(-250, 250), [5e-324]])
    found = guessed("x", pa.array([repr(value) for value in values.tolist()]), ".")
    np.testing.assert_array_equal(found, values)


def test_new_cells_are_read_as_the_model_has_them() -> None:
    text = pa.array(["7", "8", "seven", ""])
    category = ColumnCode("x", "category", ["7", "8"], missing=True)
    assert as_fitted(category, text, ".").tolist()[:3] == ["7", "8", "seven"]
    numbers = ColumnCode("x", "category", [7, 8])
    np.testing.assert_array_equal(as_fitted(numbers, text, "."), [7, 8, np.nan, np.nan])
    assert as_fitted(category, pa.array([7, 8]), ".").tolist() == ["7", "8"]
    with pytest.raises(DataError, match=r"'x' has text in row 103 \('seven'\)"):
        as_fitted(ColumnCode("x"), text, ".", 100)
    with pytest.raises(DataError, match="fitted to a date"):
        as_fitted(ColumnCode("x", "date"), text, ".")
    assert as_fitted(ColumnCode("x", "duration"), pa.array(["2 days 12:00:00"]), ".")[0] == pd.Timedelta(days=2.5)


def test_columns_are_found_by_name() -> None:
    assert places(["b", "a"], ["a", "c", "b"], "file") == [2, 0]
    with pytest.raises(DataError, match=r"^file has no column 'pirce': did you mean 'price'\.$"):
        places(["pirce"], ["make", "price"], "file")
    with pytest.raises(DataError, match="two columns with the name 'a'"):
        places(["a"], ["a", "b", "a"], "file")


@pytest.mark.parametrize(
    ("texts", "task", "values"),
    [
        (["1.5", "2", "7"], REGRESSION, [1.5, 2.0, 7.0]),
        (["0", "1", "", "1", "0"], CLASSIFICATION, [0, 1, None, 1, 0]),
        (["no", "yes", "no", "yes"], CLASSIFICATION, ["no", "yes", "no", "yes"]),
        (["True", "false", "True", "false"], CLASSIFICATION, ["True", "false", "True", "false"]),
        (["0.5", "1.5"], REGRESSION, [0.5, 1.5]),
        (["1", "2", "3"], REGRESSION, [1.0, 2.0, 3.0]),
    ],
)
def test_the_target_tells_the_task(texts: list[str], task: str, values: list[object]) -> None:
    found = read_target("y", pa.array(texts), ".")
    assert found.task == task
    assert [None if pd.isna(value) else value for value in found.values] == values


@pytest.mark.parametrize(
    ("texts", "task", "told"),
    [
        (["3", "3", "3"], None, "one value only"),
        (["", "NA"], None, "missing cells only"),
        (["1.5", "2,000", "3"], None, r"3 different values in 3 rows \(row 2: '2,000'\)"),
        (["a", "b", "a", "b"], REGRESSION, r"no number in row 1 \('a'\)"),
        (["1", "2"], "ranking", "not known"),
    ],
)
def test_a_target_that_teaches_nothing_is_refused(texts: list[str], task: str | None, told: str) -> None:
    with pytest.raises(GdklError, match=told):
        read_target("y", pa.array(texts), ".", task)


def test_labels_are_compared_in_the_models_type() -> None:
    cells = pa.array(["1", "0.0", "", "1.0"])
    assert labels_to_score("y", cells, ".", np.array([0, 1])).tolist() == [1, 0, None, 1]
    assert labels_to_score("y", pa.array(["TRUE", "false"]), ".", np.array([False, True])).tolist() == [True, False]
    with pytest.raises(DataError, match="no classes of the model: b; its classes are a, c"):
        labels_to_score("y", pa.array(["a", "b"]), ".", np.array(["a", "c"], dtype=object))


def test_held_out_rows_are_in_proportion_and_leave_every_label() -> None:
    labels = pd.Series(["a"] * 60 + ["b"] * 38 + ["c", "d"])
    target = read_target("y", pa.array(labels), ".", CLASSIFICATION)
    for seed in range(20):
        rows = held_out_rows(target, 0.2, seed)
        counts = labels[rows].value_counts()
        assert abs(counts["a"] - 12) <= 1
        assert abs(counts["b"] - 7.6) <= 1.4
        assert not set(labels[rows]) - set(labels.drop(rows))
        assert len(set(rows)) == len(rows)
    assert set(held_out_rows(target, 0.2, 0)) != set(held_out_rows(target, 0.2, 1))


@given(st.lists(st.tuples(st.text('ab,;"\n\r\\ é', max_size=4), st.floats(allow_nan=False)), min_size=1, max_size=6))
def test_what_is_written_is_read_back(rows: list[tuple[str, float]]) -> None:
    import tempfile  # noqa: PLC0415  (hypothesis wants a folder per example)

    texts, numbers = zip(*rows, strict=True)
    with tempfile.TemporaryDirectory() as folder:
        for separator, decimal in ((",", "."), (";", ",")):
            path = Path(folder) / "a.csv"
            with table_writer(str(path), ["t", "x"], Dialect(separator, decimal)) as write:
                write([pa.array(texts), pa.array(numbers)])
            with path.open(newline="", encoding="utf-8") as file:
                header, *found = csv.reader(file, delimiter=separator)
            assert header == ["t", "x"]
            assert [text for text, _ in found] == list(texts)
            values = [float(value.replace(decimal, ".") or "inf") for _, value in found]
            assert [abs(value) if np.isinf(value) else value for value in values] == [
                abs(value) if np.isinf(value) else value for value in numbers
            ]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet"])
def test_nothing_is_there_until_all_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("old")
    batch = [pa.array(["x"]), pa.array([1.5])]
    with pytest.raises(KeyboardInterrupt), table_writer(str(path), ["t", "x"], Dialect()) as write:  # noqa: PT012
        write(batch)
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    with table_writer(str(path), ["t", "x"], Dialect()) as write:
        write(batch)
        write(batch)
        assert path.read_text() == "old"
    found = pd.read_parquet(path) if name.endswith("parquet") else pd.read_csv(path)
    pd.testing.assert_frame_equal(found, pd.DataFrame({"t": ["x", "x"], "x": [1.5, 1.5]}), check_dtype=False)


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for path, told in ((tmp_path / "no" / "a.csv", "does not exist"), (tmp_path, "is a folder")):
        with pytest.raises(DataError, match=told), table_writer(str(path), ["x"], Dialect()):
            pass
