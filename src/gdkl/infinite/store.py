"""Gram matrices on disk: a file that the caller names, or a cache by the content of data and network."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gdkl.numerics import OptionError

#: Part of every key: raised when the numbers that the same network gives change beyond rounding.
CACHE_VERSION = 1


def content_key(spec: list[dict[str, Any]], kind: str, x1: Tensor, x2: Tensor | None) -> str:
    """A name for a Gram matrix: the hash of the network, the kind, and the data.

    Example:
        >>> x = torch.zeros(1, 1)
        >>> content_key([], "nngp", x, None) == content_key([], "ntk", x, None)
        False
    """
    digest = hashlib.sha256(json.dumps([CACHE_VERSION, spec, kind], sort_keys=True).encode())
    for x in (x1, x2):
        if x is None:
            digest.update(b"the first set again")
            continue
        array = np.ascontiguousarray(x.detach().cpu().numpy())
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()


def open_cached(path: Path) -> npt.NDArray[Any] | None:
    """A matrix from the cache, mapped into memory; None if it is not there or not readable."""
    try:
        return np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None


def write_npy(
    path: str | os.PathLike[str],
    shape: tuple[int, int],
    dtype: torch.dtype,
    fill: Callable[[npt.NDArray[Any]], None],
) -> npt.NDArray[Any]:
    """Let a function fill a ``.npy`` file; the file appears under its name only when it is complete.

    Raises:
        OptionError: If the path does not end in ``.npy`` or its folder does not exist.

    Returns:
        The file, mapped into memory.
    """
    path = Path(path)
    if path.suffix != ".npy":
        raise OptionError(f"out must name a .npy file; got {str(path)!r}.")
    if not path.parent.is_dir():
        raise OptionError(f"the folder {str(path.parent)!r} does not exist: create it first.")
    handle, name = tempfile.mkstemp(suffix=".partial", prefix=path.stem, dir=path.parent)
    os.close(handle)
    try:
        array = np.lib.format.open_memmap(
            name, mode="w+", dtype=np.float32 if dtype == torch.float32 else np.float64, shape=shape
        )
        fill(array)
        array.flush()
        del array
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return np.load(path, mmap_mode="r+")
