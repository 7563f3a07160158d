"""The real tables, where the environment variable GDKL_DATA names a folder that holds them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from gdkl import datasets
from gdkl.datasets import Origin
from gdkl.datasets.formats import parse
from gdkl.datasets.registry import DatasetInfo

# Read at import: each test runs without the user's own settings.
GDKL_DATA = os.environ.get("GDKL_DATA")

TABLES = [name for name in datasets.names() if datasets.describe(name).origin is not Origin.EMBEDDED]
FILES = [name for name in TABLES if datasets.describe(name).digest]

#: Mean and sample standard deviation of each target, from an account of the tables made apart from ours.
MOMENTS = {
    "boston": (22.53, 9.197),
    "concrete": (35.82, 16.71),
    "energy": (22.31, 10.09),
    "kin8nm": (0.7143, 0.2636),
    "power": (454.4, 17.07),
    "protein": (7.749, 6.118),
    "blog": (5.343, 30.5),
    "gas": (-2.726e-06, 1.041),
    "elevators": (-1.252e-07, 0.2526),
    "pol": (0.0003213, 41.73),
}


def folder_with(info: DatasetInfo) -> Path:
    if not GDKL_DATA:
        pytest.skip("GDKL_DATA is not set: set it to a folder with the .npz files to run this test")
    if not (Path(GDKL_DATA) / info.file_names).is_file():
        pytest.skip(f"GDKL_DATA={GDKL_DATA} holds no {info.file_names}")
    return Path(GDKL_DATA)


@pytest.mark.parametrize("name", FILES)
def test_the_recorded_digest_holds(name: str) -> None:
    info = datasets.describe(name)
    table = datasets.load(name, folder_with(info))
    assert table.X.shape == (info.rows, info.columns)
    assert table.y.shape == ((info.rows,) if len(info.target_names) == 1 else (info.rows, 2))
    assert table.X.dtype == table.y.dtype == np.float64
    assert np.isfinite(table.X).all()
    with np.load(folder_with(info) / f"{info.file}.npz", allow_pickle=False) as stored:
        assert tuple(stored["feature_names"].tolist()) == table.feature_names
        assert str(stored["target_name"]) == info.target_names[0]


@pytest.mark.parametrize("name", sorted(set(TABLES) - set(FILES)))
def test_a_mixed_table_has_its_recorded_size(name: str) -> None:
    info = datasets.describe(name)
    table = datasets.load(name, folder_with(info))
    assert table.X.shape == (info.rows, info.columns)
    assert len(set(table.y.tolist())) > 5 if info.task == "regression" else 2 <= len(set(table.y.tolist())) < 5


@pytest.mark.parametrize("name", MOMENTS)
def test_the_target_has_its_known_moments(name: str) -> None:
    y = datasets.load(name, folder_with(datasets.describe(name))).y
    mean, spread = MOMENTS[name]
    assert float(y.mean()) == pytest.approx(mean, rel=5e-4)
    assert float(y.std(ddof=1)) == pytest.approx(spread, rel=5e-4)


@pytest.mark.parametrize("name", [name for name in FILES if datasets.describe(name).download])
def test_a_text_of_the_table_reads_as_the_recorded_numbers(name: str) -> None:
    info = datasets.describe(name)
    table = datasets.load(name, folder_with(info))
    assert info.download is not None
    layout = info.download.layout
    Y = table.y.reshape(info.rows, -1)
    # The text may hold targets that this view of it leaves out.
    extra = np.zeros((info.rows, len(info.file_targets) - Y.shape[1]))
    # Nine digits say a float32 exactly, seventeen a float64; the sources give five to eleven.
    digits = "%.9g" if layout.get("single_precision") else "%.17g"
    mark = layout.get("delimiter") or " "
    lines = ["header"] * layout.get("header_lines", 0)
    lines += [mark.join(digits % value for value in row) for row in np.column_stack([table.X, Y, extra])]
    X, targets = parse(["\n".join(lines).encode()], info)
    y = targets[:, : Y.shape[1]].reshape(table.y.shape)
    assert datasets.content_digest(X, y) == info.digest


def test_boston_keeps_its_leading_digits() -> None:
    # A copy in use elsewhere lost leading digits in 137 rows: these values are the true extremes.
    X = datasets.load("boston", folder_with(datasets.describe("boston"))).X
    assert X.max(axis=0)[[0, 1, 6, 9, 11]].tolist() == [88.9762, 100.0, 100.0, 711.0, 396.9]
    assert X.min(axis=0)[[5, 6, 9, 10]].tolist() == [3.561, 2.9, 187.0, 12.6]


def test_energy2_adds_the_cooling_load() -> None:
    folder = folder_with(datasets.describe("energy"))
    one, two = datasets.load("energy", folder), datasets.load("energy2", folder)
    np.testing.assert_array_equal(one.X, two.X)
    np.testing.assert_array_equal(one.y, two.y[:, 0])
    assert float(two.y[:, 1].mean()) == pytest.approx(24.59, abs=0.01)
