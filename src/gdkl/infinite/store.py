"""Gram matrices on disk: a file that the caller names, or a cache by the content of data and network."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gdkl.numerics import DataWarning, OptionError, chunk_slices, file_beside

#: Part of every key: raised when the numbers that the same network gives change beyond rounding.
CACHE_VERSION = 2
#: Bytes of the checksum at the end of a cached file, behind the matrix, where NumPy does not look.
CHECKSUM_BYTES = 32
#: Bytes of a file that are read at a time.
READ_BYTES = 2**22


def content_key(spec: list[dict[str, Any]], kind: str, x1: Tensor, x2: Tensor | None) -> str:
    """A name for a Gram matrix: the hash of the network, the kind, and the data."""
    digest = hashlib.sha256(json.dumps([CACHE_VERSION, spec, kind], sort_keys=True).encode())
    for x in (x1, x2):
        if x is None:
            digest.update(b"the first set again")
            continue
        array = np.ascontiguousarray(x.detach().cpu().numpy())
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()


def cache_folder(path: str | os.PathLike[str]) -> Path:
    """The folder of a cache, made if need be; ``~`` stands for the home folder."""
    try:
        folder = Path(path).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, TypeError, RuntimeError) as error:
        raise OptionError(f"cache_dir must name a folder that can be written to; got {path!r}.") from error
    return folder


def open_cached(path: Path, shape: tuple[int, int], dtype: torch.dtype) -> npt.NDArray[Any] | None:
    """A matrix from the cache, mapped into memory; None, with a warning, if it is not what was written there."""
    if not path.exists():
        return None
    try:
        size = path.stat().st_size - CHECKSUM_BYTES
        with path.open("rb") as file:
            sound = size > 0 and _checksum(file, size) == file.read()
        array: Any = np.load(path, mmap_mode="r") if sound else None
        if isinstance(array, np.ndarray) and (array.shape, array.dtype) == (shape, _numpy_dtype(dtype)):
            return array
    except (OSError, ValueError, EOFError):
        pass
    warnings.warn(f"the cached matrix {str(path)!r} is damaged and is computed again.", DataWarning, stacklevel=3)
    return None


def _checksum(file: BinaryIO, size: int) -> bytes:
    """The checksum of the next bytes of a file."""
    digest = hashlib.sha256()
    while size > 0 and (part := file.read(min(size, READ_BYTES))):
        digest.update(part)
        size -= len(part)
    return digest.digest()


def _numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    return np.dtype(np.float32 if dtype == torch.float32 else np.float64)


def npy_path(path: str | os.PathLike[str]) -> Path:
    """The path of a ``.npy`` file in a folder that exists; ``~`` stands for the home folder."""
    try:
        found = Path(path).expanduser()
    except (TypeError, RuntimeError) as error:
        raise OptionError(f"out must name a .npy file; got {path!r}.") from error
    if found.suffix != ".npy" or found.is_dir():
        raise OptionError(f"out must name a .npy file; got {str(found)!r}.")
    if not found.parent.is_dir():
        raise OptionError(f"the folder {str(found.parent)!r} does not exist: create it first.")
    return found


def write_npy(
    path: str | os.PathLike[str],
    shape: tuple[int, int],
    dtype: torch.dtype,
    fill: Callable[[npt.NDArray[Any]], None],
    *,
    checksum: bool = False,
) -> npt.NDArray[Any]:
    """Let a function fill a ``.npy`` file, which appears when it is complete and is returned mapped into memory.

    A checksum behind the matrix is for `open_cached`.
    """
    path = npy_path(path)
    temporary = file_beside(path)
    try:
        array = np.lib.format.open_memmap(temporary, mode="w+", dtype=_numpy_dtype(dtype), shape=shape)
        fill(array)
        array.flush()
        del array
        if checksum:
            with temporary.open("r+b") as file:
                file.write(_checksum(file, temporary.stat().st_size))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return np.load(path, mmap_mode="r+")


def copy_rows(source: npt.NDArray[Any], memory: int, into: npt.NDArray[Any]) -> None:
    """Copy a matrix on disk, so many bytes at a time."""
    for rows in chunk_slices(source.shape[0], max(1, memory // max(1, 8 * source.shape[1]))):
        into[rows] = source[rows]
