"""Numerical groundwork that knows no model: errors, Cholesky, chunks, memory, device and precision."""

from gdkl.numerics.cache import CACHE_VARIABLE, cache_dir
from gdkl.numerics.cholesky import cholesky, cholesky_of_array
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
from gdkl.numerics.heap import keep_freed_memory
from gdkl.numerics.memory import GIB, available_memory, require_memory, tensor_bytes
from gdkl.numerics.pieces import SetAside, for_each, one_blas_thread, set_aside, shared_by_threads, side_by_side
from gdkl.numerics.placement import resolve_device, resolve_dtype
from gdkl.numerics.threads import halves_pay, limit_threads, threads_for

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
    "SetAside",
    "available_memory",
    "cache_dir",
    "cholesky",
    "cholesky_of_array",
    "chunk_slices",
    "file_beside",
    "for_each",
    "halves_pay",
    "keep_freed_memory",
    "limit_threads",
    "map_rows",
    "one_blas_thread",
    "require_memory",
    "resolve_device",
    "resolve_dtype",
    "rows_per_chunk",
    "set_aside",
    "shared_by_threads",
    "side_by_side",
    "tensor_bytes",
    "threads_for",
    "write_atomically",
]
