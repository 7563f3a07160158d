"""Tables of numbers and text: local CSV files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gdkl import datasets
from gdkl.numerics import DataError


def write(folder: Path, name: str, frame: pd.DataFrame) -> Path:
    path = folder / "tables" / f"{name}.csv.gz"
    path.parent.mkdir(exist_ok=True)
    frame.to_csv(path, index=False)
    return path


def test_a_frame_as_users_have_it_without_rows_that_lack_the_target(tmp_path: Path) -> None:
    frame = pd.DataFrame({"make": ["a", None, "b", "a"], "price": [3.0, 4.0, np.nan, 5.0], "doors": [2, 4, 4, 2]})
    path = write(tmp_path, "imports85", frame)
    table = datasets.load("imports85", tmp_path)
    pd.testing.assert_frame_equal(table.X, pd.DataFrame({"make": ["a", None, "a"], "doors": [2, 4, 2]}))
    np.testing.assert_array_equal(table.y, [3.0, 4.0, 5.0])
    assert (table.feature_names, table.target_name) == (("make", "doors"), "price")
    assert datasets.locate("imports85", tmp_path) == path


def test_labels_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "hr", pd.DataFrame({"status": ["ok", "fired"], "age": [30, 40]}))
    monkeypatch.setenv("GDKL_DATA", str(tmp_path))
    assert datasets.load("hr").y.tolist() == ["ok", "fired"]


def test_one_line_says_what_to_put_where() -> None:
    with pytest.raises(
        DataError, match=r"tables/titanic\.csv\.gz .* column 'survived'.*--data-dir.*GDKL_DATA"
    ) as error:
        datasets.load("titanic")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "frame",
    [pd.DataFrame({"age": [1.0]}), pd.DataFrame({"price": ["dear", "cheap"]})],
    ids=["no target", "text target"],
)
def test_another_file_is_refused(frame: pd.DataFrame, tmp_path: Path) -> None:
    write(tmp_path, "imports85", frame)
    with pytest.raises(DataError, match=r"cannot be read as the dataset 'imports85'.*column 'price'"):
        datasets.load("imports85", tmp_path)
