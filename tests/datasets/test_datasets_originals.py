"""Tables that are read from their authors' own files: small files in the same form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gdkl import datasets
from gdkl.datasets import MissingDatasetError
from gdkl.numerics import DataError, DataWarning

ROWS = 7
CT = "slice_localization_data.csv"


def ct_slices(folder: Path, columns: int = 384) -> tuple[np.ndarray, np.ndarray]:
    """As the UCI repository has it: a quoted heading, the patient first and the location last."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-0.25, 1.0, (ROWS, columns)).round(4), rng.uniform(0, 97, ROWS).round(6)
    heading = ",".join(f'"{name}"' for name in ("patientId", *(f"value{k}" for k in range(columns)), "reference"))
    rows = [",".join(map(str, (patient, *x, target))) for patient, x, target in zip(range(ROWS), X, y, strict=True)]
    (folder / CT).write_text("\n".join([heading, *rows]) + "\n")
    return X, y


def buzz(folder: Path, columns: int = 77) -> tuple[np.ndarray, np.ndarray]:
    """No heading, whole numbers among others, the target last."""
    rng = np.random.default_rng(1)
    X, y = rng.poisson(50.0, (ROWS, columns)).astype(float), rng.uniform(0, 5000, ROWS).round(1)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [",".join(f"{value:g}" for value in (*x, target)) for x, target in zip(X, y, strict=True)]
    (folder / "Twitter.data").write_text("\n".join(rows) + "\n")
    return X, y


def test_ct_slices_without_the_patient(tmp_path: Path) -> None:
    X, y = ct_slices(tmp_path)
    with pytest.warns(DataWarning, match="7 rows where the dataset 'ctslice' has 53500"):
        table = datasets.load("ctslice", tmp_path)
    np.testing.assert_array_equal(table.X, X)
    np.testing.assert_array_equal(table.y, y)
    assert (table.feature_names[0], table.feature_names[-1], table.target_name) == ("value0", "value383", "reference")
    assert datasets.locate("ctslice", tmp_path) == tmp_path / CT


@pytest.mark.parametrize("below", ["", "regression/Twitter"], ids=["alone", "as unpacked"])
def test_buzz_where_it_was_unpacked(below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = buzz(tmp_path / below)
    monkeypatch.setenv("GDKL_DATA", str(tmp_path))
    with pytest.warns(DataWarning, match="583250"):
        table = datasets.load("buzz")
    np.testing.assert_array_equal(table.X, X)
    np.testing.assert_array_equal(table.y, y)
    assert table.feature_names[6:15:7] == ("NCD_6", "AI_6")
    assert table.feature_names[14] == "AS(NA)_0"


@pytest.mark.parametrize(("name", "file"), [("ctslice", CT), ("buzz", r"Twitter\.data")])
def test_one_line_says_what_to_get_and_where_to_put_it(name: str, file: str) -> None:
    with pytest.raises(MissingDatasetError, match=rf"{file}.*archive\.ics\.uci\.edu/dataset/\d+.*GDKL_DATA") as error:
        datasets.load(name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "make", "wrong"),
    [
        ("ctslice", lambda folder: ct_slices(folder, 300), "value300"),
        ("buzz", lambda folder: buzz(folder, 60), "it has 61 columns and not 78"),
        ("buzz", lambda folder: (folder / "Twitter.data").write_text("1,?,3\n"), "3 columns"),
        ("buzz", lambda folder: (folder / "Twitter.data").write_text(",".join(["1"] * 77) + ",\n"), "empty"),
        ("buzz", lambda folder: (folder / "Twitter.data").write_text(",".join(["1"] * 77) + ",x\n"), "'x'"),
        ("ctslice", lambda folder: (folder / CT).write_text(""), "No columns"),
    ],
)
def test_another_file_is_refused_in_one_line(name: str, make, wrong: str, tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(DataError, match=r"cannot be read as the dataset.*replace it by the original") as error:
        datasets.load(name, tmp_path)
    assert wrong in str(error.value)
    assert "\n" not in str(error.value)
