"""Datasets as local files: where they lie, how they are read, checked and written."""

from __future__ import annotations

import io
import os
import warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from gdkl.datasets.content import ImageSet, Table, content_digest, image_digest
from gdkl.datasets.registry import DatasetInfo, ImageInfo, MixedInfo, OriginalInfo
from gdkl.numerics import CACHE_VARIABLE, DataError, DataWarning, cache_dir, write_atomically

PathLike: TypeAlias = str | os.PathLike[str]
Arrays: TypeAlias = tuple[NDArray[Any], NDArray[Any]]

#: Folder with local files, looked at when no folder is passed.
DATA_VARIABLE = "GDKL_DATA"

#: What reading a file of another kind raises.
READ_ERRORS = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error)


def reason_of(error: Exception) -> str:
    """What an error says, on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def find(info: DatasetInfo | ImageInfo, data_dir: PathLike | None) -> tuple[Path, ...] | None:
    """First local copy (one file, or all parts): in the folder passed, in GDKL_DATA's, in the cache."""
    if data_dir is not None and not Path(data_dir).expanduser().is_dir():
        raise DataError(f"data_dir={os.fspath(data_dir)!r} is not a folder: pass one that holds {info.file_names}.")
    chosen = [folder for folder in (data_dir, os.environ.get(DATA_VARIABLE)) if folder]
    # None stands for the cache: where it is takes an import that local files do not need.
    for place in (*chosen, None):
        folder = cache_dir() if place is None else Path(place).expanduser()
        for names in ((info.file,), info.parts):
            paths = tuple(folder / f"{name}{info.ending}" for name in names)
            if all(path.is_file() for path in paths):
                return paths
    return None


def read(paths: Sequence[Path], info: DatasetInfo | ImageInfo) -> Table | ImageSet:
    """Read a dataset from its parts, in order, and check its content.

    A table's file holds the arrays ``X``, ``y`` and, for further targets, ``y2``, ``y3``, …. A file of images holds the
    labels as ``y`` and the pixels in one of three forms: ``X`` of shape (n, channels, height, width); ``x`` of shape
    (n, height, width), or with channels last; or lossless WebP sheets (``webp``, the bytes of all, ``offsets``, where
    each starts, and ``grid``, rows and columns of images per sheet).
    """
    if isinstance(info, MixedInfo):
        return _read_csv(paths[0], info)
    if isinstance(info, OriginalInfo):
        return _read_original(paths[0], info)
    parts: list[Arrays] = []
    for path in paths:
        try:
            stored = np.load(path, allow_pickle=False)
            if not isinstance(stored, NpzFile):
                raise ValueError("it is one array without a name")
            with stored as arrays:
                parts.append(_table_arrays(arrays, info) if isinstance(info, DatasetInfo) else _pixels(arrays, info))
        except READ_ERRORS as error:
            found = f"{path} cannot be read as the dataset {info.name!r} ({reason_of(error)})"
            raise DataError(f"{found}: replace it by a .npz file with the arrays {_expected(info)}.") from error
    X, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    wrong = check_digest(X, y, info)
    if wrong is not None:
        found = f"{' and '.join(map(str, paths))} does not hold the dataset {info.name!r}: {wrong}"
        raise DataError(f"{found}. Replace the file, or remove it to use another copy.")
    return wrap(X, y, info)


def _read_csv(path: Path, info: MixedInfo) -> Table:
    """A table of numbers and text: ``X`` is a DataFrame; rows without a target are left out."""
    import pandas as pd  # noqa: PLC0415  (slow to import, and no other dataset needs it)

    [target] = info.target_names
    try:
        frame = pd.read_csv(path).dropna(subset=[target], ignore_index=True)
        y = frame.pop(target).to_numpy(dtype=np.float64 if info.task == "regression" else None)
    except READ_ERRORS as error:
        found = f"{path} cannot be read as the dataset {info.name!r} ({reason_of(error)})"
        raise DataError(f"{found}: replace it by a CSV file with the target in the column {target!r}.") from error
    return Table(cast(Any, frame), y, tuple(map(str, frame.columns)), target, info.name)


def _read_original(path: Path, info: OriginalInfo) -> Table:
    """A table of numbers separated by commas, as its authors publish it; columns that are not asked for are ignored."""
    import pandas as pd  # noqa: PLC0415

    names = [*info.feature_names, *info.target_names]
    try:
        frame = pd.read_csv(path, header=0 if info.header else None)
        if not info.header:
            if frame.shape[1] != len(names):
                raise ValueError(f"it has {frame.shape[1]} columns and not {len(names)}")
            frame.columns = names
        values = frame[names].to_numpy(dtype=np.float64)
        if not np.isfinite(values).all():
            raise ValueError("a cell is empty or not finite")
    except READ_ERRORS as error:
        found = f"{path} cannot be read as the dataset {info.name!r} ({reason_of(error)})"
        raise DataError(f"{found}: replace it by the original file, {info.page}.") from error
    if len(values) != info.rows:
        part = f"{path} has {len(values)} rows where the dataset {info.name!r} has {info.rows}"
        warnings.warn(f"{part}: scores are not comparable with those of others.", DataWarning, stacklevel=2)
    X, y = np.split(values, [info.columns], axis=1)
    return Table(np.ascontiguousarray(X), y[:, 0], info.feature_names, info.target_names[0], info.name)


def check_digest(X: NDArray[Any], y: NDArray[Any], info: DatasetInfo | ImageInfo) -> str | None:
    """What is wrong with the content of a dataset, in words; None if it is the recorded one."""
    digest = content_digest(X, y) if isinstance(info, DatasetInfo) else image_digest(X, y)
    return None if digest == info.digest else f"its SHA-256 is {digest[:12]}… and not {info.digest[:12]}…"


def wrap(X: NDArray[Any], y: NDArray[Any], info: DatasetInfo | ImageInfo) -> Table | ImageSet:
    """A dataset under the registry's names, which are the same whatever file the numbers came from."""
    if isinstance(info, ImageInfo):
        return ImageSet(X, y, info.class_names, info.name)
    targets = info.target_names
    return Table(X, y, info.feature_names, targets[0] if len(targets) == 1 else targets, info.name)


def _expected(info: DatasetInfo | ImageInfo) -> str:
    if isinstance(info, DatasetInfo):
        return ", ".join(("X", *_target_keys(info.target_names)))
    return f"X (uint8, n x {' x '.join(map(str, info.shape))}) and y"


def _target_keys(targets: tuple[str, ...]) -> tuple[str, ...]:
    """Array names of targets in a file: ``y``, ``y2``, ``y3``, …."""
    return tuple("y" if index == 0 else f"y{index + 1}" for index in range(len(targets)))


def _table_arrays(arrays: Mapping[str, NDArray[Any]], info: DatasetInfo) -> Arrays:
    columns = [np.asarray(arrays[key], dtype=np.float64) for key in _target_keys(info.target_names)]
    y = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
    return np.asarray(arrays["X"], dtype=np.float64), y


def _pixels(arrays: Mapping[str, NDArray[Any]], info: ImageInfo) -> Arrays:
    channels, height, width = info.shape
    y = np.asarray(arrays["y"]).astype(np.int64)
    if "X" in arrays:
        images = arrays["X"]
    elif "x" in arrays:
        images = arrays["x"].reshape(-1, height, width, channels).transpose(0, 3, 1, 2)
    else:
        images = _from_sheets(arrays, info)[: len(y)]
    if images.dtype != np.uint8 or images.shape != (len(y), *info.shape):
        raise ValueError(f"{len(y)} labels and images of shape {images.shape}, {images.dtype}")
    return np.ascontiguousarray(images), y


def _from_sheets(arrays: Mapping[str, NDArray[Any]], info: ImageInfo) -> NDArray[np.uint8]:
    """Cut sheets of images into ``(n, channels, height, width)``."""
    from PIL import Image  # noqa: PLC0415  (it comes with matplotlib, and nothing else here needs it)

    channels, height, width = info.shape
    rows, columns = (int(value) for value in arrays["grid"].tolist())
    raw = arrays["webp"].tobytes()
    sheets: list[NDArray[np.uint8]] = []
    for first, last in pairwise(int(value) for value in arrays["offsets"].tolist()):
        with Image.open(io.BytesIO(raw[first:last])) as sheet:
            image = np.asarray(sheet.convert("RGB" if channels == 3 else "L"), dtype=np.uint8)
        cells = image.reshape(rows, height, columns, width, channels)
        sheets.append(cells.transpose(0, 2, 4, 1, 3).reshape(-1, channels, height, width))
    return np.concatenate(sheets)


def write(X: NDArray[Any], y: NDArray[Any], info: DatasetInfo | ImageInfo) -> Path:
    """Write a dataset into the cache, as a whole or not at all; tables with one column per ``info.file_targets``."""
    arrays: dict[str, NDArray[Any]] = {"X": X}
    save = np.savez_compressed
    if isinstance(info, ImageInfo):
        # Photographs hardly shrink, and reading them back is quicker as they are.
        arrays |= {"y": y, "class_names": np.array(info.class_names)}
        save = np.savez
    else:
        arrays["feature_names"] = np.array(info.feature_names)
        for index, (key, name) in enumerate(zip(_target_keys(info.file_targets), info.file_targets, strict=True)):
            arrays[key] = y[:, index]
            arrays["target_name" if index == 0 else f"{key}_name"] = np.array(name)
    path = cache_dir() / f"{info.file}.npz"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: save(file, allow_pickle=False, **arrays))
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path} cannot be written ({reason}): set {CACHE_VARIABLE} to another folder.") from error
    return path
