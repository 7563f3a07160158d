"""Local files: the order of search, the content check, and what is said of files that will not do."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from datasets_helpers import Numbers, Registrar, fields

from gdkl import datasets
from gdkl.numerics import DataError, OptionError


def save(folder: Path, name: str = "made", **arrays: np.ndarray) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.npz"
    np.savez(path, **arrays)
    return path


def one_line(error: pytest.ExceptionInfo[Exception]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


def test_a_table_unpacks_and_carries_names(tmp_path: Path, numbers: Numbers, register: Registrar) -> None:
    X, y = numbers
    # Single precision in the file: the table is float64 all the same.
    register({"made": fields(X.astype(np.float32), y)})
    save(tmp_path / "data", X=X.astype(np.float32), y=y)

    table = datasets.load("made", tmp_path / "data")
    X_loaded, y_loaded, feature_names, target_name = table

    assert X_loaded.dtype == y_loaded.dtype == np.float64
    np.testing.assert_array_equal(X_loaded, X.astype(np.float32))
    np.testing.assert_array_equal(y_loaded, y)
    assert feature_names == ("f0", "f1", "f2", "f3")
    assert (target_name, table.name) == ("y", "made")
    assert repr(table) == "<Table made: 12 rows, 4 features, target y>"


def test_a_table_is_frozen_and_pickles(numbers: Numbers) -> None:
    table = datasets.Table(*numbers, ("a", "b", "c", "d"), "y", name="made")
    with pytest.raises(AttributeError):
        table.name = "other"  # type: ignore[misc]
    again = pickle.loads(pickle.dumps(table))
    np.testing.assert_array_equal(again.X, table.X)
    assert (again.feature_names, again.target_name, again.name) == (("a", "b", "c", "d"), "y", "made")


def test_search_order(
    tmp_path: Path, cache: Path, numbers: Numbers, register: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = numbers
    register({"made": fields(X, y)})
    folders = [tmp_path / "argument", tmp_path / "variable", cache]
    paths = [save(folder, X=X, y=y) for folder in folders]
    monkeypatch.setenv("GDKL_DATA", str(folders[1]))

    for path in paths:
        assert datasets.locate("made", folders[0]) == path
        np.testing.assert_array_equal(datasets.load("made", folders[0]).X, X)
        path.unlink()
    assert datasets.locate("made", folders[0]) is None


def test_home_is_expanded(
    tmp_path: Path, numbers: Numbers, register: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = numbers
    register({"made": fields(X, y)})
    monkeypatch.setenv("HOME", str(tmp_path))
    path = save(tmp_path / "mine", X=X, y=y)
    assert datasets.locate("made", "~/mine") == path
    monkeypatch.setenv("GDKL_CACHE", "~/mine")
    assert datasets.locate("made") == path


def test_the_cache_is_the_platforms_unless_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pooch = pytest.importorskip("pooch")
    assert datasets.cache_dir() == tmp_path / "cache"
    monkeypatch.delenv("GDKL_CACHE")
    assert datasets.cache_dir() == Path(pooch.os_cache("gdkl"))


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder") as error:
        datasets.load("boston", tmp_path / "nowhere")
    assert "boston.npz" in one_line(error)


@pytest.mark.parametrize("change", ["value", "shape", "order", "target"])
def test_other_numbers_are_refused(tmp_path: Path, numbers: Numbers, register: Registrar, change: str) -> None:
    X, y = numbers
    register({"made": fields(X, y)})
    if change == "value":
        X = X.copy()
        X[3, 2] = np.nextafter(X[3, 2], np.inf)
    elif change == "shape":
        X = X.reshape(6, 8)
    elif change == "order":
        X, y = X[::-1], y[::-1]
    else:
        y = y + 1.0
    path = save(tmp_path, X=X, y=y)
    with pytest.raises(DataError, match="does not hold the dataset 'made'") as error:
        datasets.load("made", tmp_path)
    message = one_line(error)
    assert str(path) in message
    assert "Replace the file" in message


@pytest.mark.parametrize(
    "content",
    [b"", b"not a zip file", b"PK\x03\x04 cut short", b"\x93NUMPY\x01\x00"],
    ids=["empty", "text", "cut", "npy"],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, numbers: Numbers, register: Registrar, content: bytes) -> None:
    register({"made": fields(*numbers)})
    (tmp_path / "made.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"made\.npz cannot be read .* the arrays X, y") as error:
        datasets.load("made", tmp_path)
    one_line(error)


def test_an_array_file_in_disguise_is_refused(tmp_path: Path, numbers: Numbers, register: Registrar) -> None:
    X, y = numbers
    register({"made": fields(X, y)})
    with (tmp_path / "made.npz").open("wb") as stream:
        np.save(stream, X)
    with pytest.raises(DataError, match="cannot be read"):
        datasets.load("made", tmp_path)


@pytest.mark.parametrize("missing", ["X", "y"])
def test_a_missing_array_is_named(tmp_path: Path, numbers: Numbers, register: Registrar, missing: str) -> None:
    X, y = numbers
    register({"made": fields(X, y)})
    arrays = {"X": X, "y": y}
    del arrays[missing]
    save(tmp_path, **arrays)
    with pytest.raises(DataError, match=f"{missing} is not a file in the archive"):
        datasets.load("made", tmp_path)


def test_pickled_objects_are_never_run(tmp_path: Path, numbers: Numbers, register: Registrar) -> None:
    X, y = numbers
    register({"made": fields(X, y)})
    trap = np.empty(1, dtype=object)
    trap[0] = Trap(str(tmp_path / "sprung"))
    np.savez(tmp_path / "made.npz", X=trap, y=y)
    with pytest.raises(DataError, match="allow_pickle"):
        datasets.load("made", tmp_path)
    assert not (tmp_path / "sprung").exists()


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path(self.path),))


def test_several_targets_of_one_file(tmp_path: Path, numbers: Numbers, register: Registrar) -> None:
    X, y = numbers
    both = np.stack([y, -y], axis=1)
    one = fields(X, y, file_targets=["y", "minus"])
    two = {"like": "made", "file": "made", "targets": ["y", "minus"], "digest": datasets.content_digest(X, both)}
    register({"made": one, "made2": two})
    save(tmp_path, X=X, y=y, y2=-y)

    np.testing.assert_array_equal(datasets.load("made", tmp_path).y, y)
    table = datasets.load("made2", tmp_path)
    np.testing.assert_array_equal(table.y, both)
    assert table.target_name == ("y", "minus")
    assert "targets y, minus" in repr(table)
    assert datasets.locate("made2", tmp_path) == tmp_path / "made.npz"


def test_an_unknown_name_lists_the_known() -> None:
    for call in (datasets.load, datasets.describe, datasets.fetch, datasets.locate):
        with pytest.raises(OptionError, match="no dataset 'bostom'") as error:
            call("bostom")
        assert all(name in one_line(error) for name in datasets.names())


def test_a_fixed_table_takes_no_seed() -> None:
    for name in ("diabetes", "boston"):
        with pytest.raises(OptionError, match="takes no seed"):
            datasets.load(name, seed=1)
