"""Tables as local ``.npz`` files: where they lie, how they are read, checked and written."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.lib.npyio import NpzFile

from gdkl.datasets.digest import content_digest
from gdkl.datasets.registry import DatasetInfo
from gdkl.datasets.table import FloatArray, Table
from gdkl.numerics import CACHE_VARIABLE, DataError, cache_dir, write_atomically

PathLike: TypeAlias = str | os.PathLike[str]

#: Folder with local files, looked at when no folder is passed.
DATA_VARIABLE = "GDKL_DATA"


def find(info: DatasetInfo, data_dir: PathLike | None) -> Path | None:
    """First local file of a dataset: in the folder passed, in GDKL_DATA's, in the cache.

    Every file is checked for its content when it is read, so it does not matter which one is found.

    Raises:
        DataError: If the folder passed does not exist.
    """
    if data_dir is not None and not Path(data_dir).expanduser().is_dir():
        raise DataError(f"data_dir={os.fspath(data_dir)!r} is not a folder: pass one that holds {info.file}.npz.")
    for folder in local_folders(data_dir):
        path = folder / f"{info.file}.npz"
        if path.is_file():
            return path
    return None


def local_folders(data_dir: PathLike | None) -> Iterator[Path]:
    """Folders to look at, in order; the cache is worked out only when it is needed."""
    if data_dir is not None:
        yield Path(data_dir).expanduser()
    chosen = os.environ.get(DATA_VARIABLE)
    if chosen:
        yield Path(chosen).expanduser()
    yield cache_dir()


def read_table(path: Path, info: DatasetInfo) -> Table:
    """Read a table and vouch for its content.

    Args:
        path: An ``.npz`` file with the arrays ``X``, ``y`` and, for further targets, ``y2``, ``y3``, ….
        info: The dataset that it should hold.

    Raises:
        DataError: If the file is not of this form or holds other numbers.
    """
    try:
        with open_arrays(path) as arrays:
            X = np.asarray(arrays["X"], dtype=np.float64)
            columns = [np.asarray(arrays[key], dtype=np.float64) for key in _target_keys(info.target_names)]
        y = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{path} cannot be read as the dataset {info.name!r} ({reason}): replace it by a .npz file with "
            f"the arrays {', '.join(('X', *_target_keys(info.target_names)))}."
        ) from error
    digest = content_digest(X, y)
    if digest != info.digest:
        raise DataError(
            f"{path} does not hold the dataset {info.name!r}: its SHA-256 is {digest[:12]}… and not "
            f"{info.digest[:12]}…. Replace the file, or remove it to use another copy."
        )
    return make_table(X, y, info)


def open_arrays(path: Path) -> NpzFile:
    """The arrays of a file; what is pickled is never read."""
    arrays = np.load(path, allow_pickle=False)
    if not isinstance(arrays, NpzFile):
        raise ValueError("it is one array without a name")
    return arrays


def make_table(X: FloatArray, y: FloatArray, info: DatasetInfo) -> Table:
    """A table under the registry's names, which are the same whatever file the numbers came from."""
    single = len(info.target_names) == 1
    return Table(X, y, info.feature_names, info.target_names[0] if single else info.target_names, info.name)


def write_file(folder: Path, X: FloatArray, targets: FloatArray, info: DatasetInfo) -> Path:
    """Write the file of a dataset so that it is there as a whole or not at all.

    Args:
        folder: Where to; made if it does not exist.
        X: Features, shape ``(n, d)``.
        targets: One column for each of ``info.file_targets``.
        info: The dataset.

    Returns:
        The path of the file.

    Raises:
        DataError: If the folder cannot be written to.
    """
    arrays: dict[str, np.ndarray] = {"X": X, "feature_names": np.array(info.feature_names)}
    for index, (key, name) in enumerate(zip(_target_keys(info.file_targets), info.file_targets, strict=True)):
        arrays[key] = targets[:, index]
        arrays["target_name" if index == 0 else f"{key}_name"] = np.array(name)
    path = folder / f"{info.file}.npz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))
    except OSError as error:
        raise DataError(
            f"{path} cannot be written ({error.strerror or error}): set {CACHE_VARIABLE} to another folder."
        ) from error
    return path


def _target_keys(targets: tuple[str, ...]) -> tuple[str, ...]:
    """Array names of targets in a file: ``y``, ``y2``, ``y3``, …."""
    return tuple("y" if index == 0 else f"y{index + 1}" for index in range(len(targets)))
