"""Numerical groundwork that knows no model: errors, Cholesky, chunks, memory, device and precision."""

from gdkl.numerics.cache import CACHE_VARIABLE, cache_dir
from gdkl.numerics.cholesky import cholesky
from gdkl.numerics.chunks import DEFAULT_BUDGET, chunk_slices, map_rows, rows_per_chunk
from gdkl.numerics.errors import (
    DataError,
    DataWarning,
    GdklError,
    GdklWarning,
    InterruptedFitWarning,
    MemoryLimitError,
    ModelFileError,
    NotFittedError,
    NotPositiveDefiniteError,
    NumericsError,
    NumericsWarning,
    OptionError,
)
from gdkl.numerics.files import file_beside, write_atomically
from gdkl.numerics.memory import GIB, available_memory, require_memory, tensor_bytes
from gdkl.numerics.placement import resolve_device, resolve_dtype
from gdkl.numerics.threads import limit_threads, thread_map, thread_pool, threads_for

__all__ = [
    "CACHE_VARIABLE",
    "DEFAULT_BUDGET",
    "GIB",
    "DataError",
    "DataWarning",
    "GdklError",
    "GdklWarning",
    "InterruptedFitWarning",
    "MemoryLimitError",
    "ModelFileError",
    "NotFittedError",
    "NotPositiveDefiniteError",
    "NumericsError",
    "NumericsWarning",
    "OptionError",
    "available_memory",
    "cache_dir",
    "cholesky",
    "chunk_slices",
    "file_beside",
    "limit_threads",
    "map_rows",
    "require_memory",
    "resolve_device",
    "resolve_dtype",
    "rows_per_chunk",
    "tensor_bytes",
    "thread_map",
    "thread_pool",
    "threads_for",
    "write_atomically",
]
