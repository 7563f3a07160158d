"""Memory: how much is free, how much a plan needs, and a clear refusal before a large allocation fails."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch

from gdkl.numerics.errors import GdklError, MemoryLimitError

#: A plan may take at most this part of what is free: the rest of the process needs some too.
USABLE_PART = 0.8

GIB = 2**30

#: Words of torch's errors on Linux and Windows, and of CUDA's libraries, which are plain `RuntimeError`.
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")


def available_memory(device: torch.device | str = "cpu") -> int:
    """Bytes that a computation on a device can still take.

    Example:
        >>> available_memory("cpu") > 0
        True
    """
    device = torch.device(device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # Blocks that torch holds in its cache without using them are free to us as well.
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free) + int(cached)
    return min(psutil.virtual_memory().available, _cgroup_memory())


def _cgroup_memory(folder: Path = Path("/sys/fs/cgroup")) -> int:
    """What a container's limit leaves, which psutil does not know; practically infinite where there is none."""
    try:
        limit = int((folder / "memory.max").read_text())
        used = int((folder / "memory.current").read_text())
        for line in (folder / "memory.stat").read_text().splitlines():
            # File pages that nobody uses count as used, yet the kernel drops them when memory is asked for.
            if line.startswith("inactive_file "):
                used -= int(line.split()[1])
        return max(limit - used, 0)
    except (OSError, ValueError):
        return 2**62


def tensor_bytes(*shape: int, dtype: torch.dtype = torch.float64) -> int:
    """Bytes of a dense tensor.

    Example:
        >>> tensor_bytes(1000, 1000)
        8000000
    """
    return math.prod(shape) * dtype.itemsize


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, NumPy or torch says that memory could not be had, on the CPU or a GPU.

    Example:
        >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("shapes do not fit"))
        (True, False)
    """
    if isinstance(error, GdklError):
        return False
    said = isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)
    return said or isinstance(error, (MemoryError, torch.OutOfMemoryError))


@contextmanager
def named_memory_errors(*, what: str, remedy: str, device: torch.device | str = "cpu") -> Generator[None]:
    """Inside, memory that cannot be had is a `MemoryLimitError` that says for what, and what the user can do.

    Example:
        >>> with named_memory_errors(what="a small task", remedy="Use fewer rows."):
        ...     pass
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        free = available_memory(device) / GIB
        raise MemoryLimitError(
            f"{what} needs more memory than there is on {device}, of which {free:.1f} GiB are free now. {remedy}"
        ) from error


def require_memory(needed: int, *, what: str, remedy: str, device: torch.device | str = "cpu") -> None:
    """Raise before a large allocation that would not fit: ``what`` takes the bytes, ``remedy`` is what the user can do.

    Raises:
        MemoryLimitError: If the device has less than ``needed`` bytes to give.

    Example:
        >>> require_memory(tensor_bytes(100, 100), what="A small matrix", remedy="Use fewer rows.")
    """
    device = torch.device(device)
    if device.type == "cuda" and needed <= USABLE_PART * torch.cuda.mem_get_info(device)[0]:
        # Without asking what torch's cache could give, which takes longer than a small kernel.
        return
    usable = int(USABLE_PART * available_memory(device))
    if needed > usable:
        raise MemoryLimitError(
            f"{what} needs {needed / GIB:.1f} GiB and {usable / GIB:.1f} GiB can be used on {device}. {remedy}"
        )
