"""Sets of images as local ``.npz`` files: where they lie, how they are read, checked and written."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gdkl.datasets.digest import image_digest
from gdkl.datasets.image_registry import ImageInfo
from gdkl.datasets.image_set import ImageSet
from gdkl.datasets.store import PathLike, local_folders, open_arrays
from gdkl.numerics import CACHE_VARIABLE, DataError, write_atomically


def find_images(info: ImageInfo, data_dir: PathLike | None) -> tuple[Path, ...] | None:
    """First local copy of a set: one file of its name, or all of its parts, in one folder.

    Raises:
        DataError: If the folder passed does not exist.
    """
    if data_dir is not None and not Path(data_dir).expanduser().is_dir():
        raise DataError(f"data_dir={os.fspath(data_dir)!r} is not a folder: pass one that holds {file_names(info)}.")
    for folder in local_folders(data_dir):
        for names in ((info.name,), info.parts):
            paths = tuple(folder / f"{name}.npz" for name in names)
            if all(path.is_file() for path in paths):
                return paths
    return None


def file_names(info: ImageInfo) -> str:
    """The local files that would do, in words."""
    parts = " and ".join(f"{name}.npz" for name in info.parts)
    return parts if info.parts == (info.name,) else f"{info.name}.npz, or {parts}"


def read_images(paths: Sequence[Path], info: ImageInfo) -> ImageSet:
    """Read a set of images from its parts, in order, and vouch for its content.

    A file holds the labels as ``y`` and the images in one of three forms: ``X`` of shape (n, channels, height, width);
    ``x`` of shape (n, height, width), or with channels last; or lossless WebP sheets (``webp``, the bytes of all,
    ``offsets``, where each starts, and ``grid``, rows and columns of images a sheet).

    Raises:
        DataError: If a file is not of this form, or they hold other images.
    """
    pixels: list[NDArray[np.uint8]] = []
    labels: list[NDArray[np.int64]] = []
    for path in paths:
        try:
            with open_arrays(path) as arrays:
                y = np.asarray(arrays["y"]).astype(np.int64)
                pixels.append(_pixels(arrays, len(y), info))
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise DataError(
                f"{path} cannot be read as the dataset {info.name!r} ({reason}): replace it by a .npz file with the "
                f"arrays X (uint8, n x {' x '.join(map(str, info.shape))}) and y."
            ) from error
        labels.append(y)
    X, y = np.concatenate(pixels), np.concatenate(labels)
    digest = image_digest(X, y)
    if digest != info.digest:
        raise DataError(
            f"{' and '.join(map(str, paths))} do not hold the dataset {info.name!r}: the SHA-256 is {digest[:12]}… and "
            f"not {info.digest[:12]}…. Replace them, or remove them to use another copy."
        )
    return ImageSet(X, y, info.class_names, info.name)


def _pixels(arrays: Mapping[str, NDArray[np.generic]], count: int, info: ImageInfo) -> NDArray[np.uint8]:
    channels, height, width = info.shape
    if "X" in arrays:
        images = arrays["X"]
    elif "x" in arrays:
        images = arrays["x"].reshape(-1, height, width, channels).transpose(0, 3, 1, 2)
    else:
        images = _from_sheets(arrays["webp"], arrays["offsets"], arrays["grid"], info)[:count]
    if images.dtype != np.uint8 or images.shape != (count, *info.shape):
        raise ValueError(f"{count} labels and images of shape {images.shape}, {images.dtype}")
    return np.ascontiguousarray(images, dtype=np.uint8)


def _from_sheets(
    content: NDArray[np.generic], offsets: NDArray[np.generic], grid: NDArray[np.generic], info: ImageInfo
) -> NDArray[np.uint8]:
    """Cut sheets of images into ``(n, channels, height, width)``."""
    from PIL import Image  # noqa: PLC0415  (it comes with matplotlib, and nothing else here needs it)

    channels, height, width = info.shape
    rows, columns = (int(value) for value in grid.tolist())
    raw, marks = content.tobytes(), [int(value) for value in offsets.tolist()]
    sheets: list[NDArray[np.uint8]] = []
    for first, last in pairwise(marks):
        with Image.open(io.BytesIO(raw[first:last])) as sheet:
            image = np.asarray(sheet.convert("RGB" if channels == 3 else "L"), dtype=np.uint8)
        cells = image.reshape(rows, height, columns, width, channels)
        sheets.append(cells.transpose(0, 2, 4, 1, 3).reshape(-1, channels, height, width))
    return np.concatenate(sheets)


def write_images(folder: Path, X: NDArray[np.uint8], y: NDArray[np.int64], info: ImageInfo) -> Path:
    """Write the file of a set so that it is there as a whole or not at all.

    Raises:
        DataError: If the folder cannot be written to.
    """
    path = folder / f"{info.name}.npz"
    # Photographs hardly shrink, and reading them back is quicker as they are.
    arrays = {"X": X, "y": y, "class_names": np.array(info.class_names)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: np.savez(file, allow_pickle=False, **arrays))
    except OSError as error:
        raise DataError(
            f"{path} cannot be written ({error.strerror or error}): set {CACHE_VARIABLE} to another folder."
        ) from error
    return path
