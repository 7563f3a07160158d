"""Numerical groundwork that knows no model: errors, Cholesky, chunks, memory, device and precision.

What needs torch or scikit-learn is imported when it is first used: the command line and the datasets do without.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gdkl.numerics.errors import (
    DataError,
    DataWarning,
    GdklError,
    GdklWarning,
    InterruptedFitWarning,
    MemoryLimitError,
    MissingPackageError,
    ModelFileError,
    NotPositiveDefiniteError,
    NumericsError,
    NumericsWarning,
    OptionError,
)
from gdkl.numerics.files import CACHE_VARIABLE, cache_dir, file_beside, write_atomically

if TYPE_CHECKING:
    from gdkl.numerics.chunks import DEFAULT_BUDGET, chunk_slices, map_rows, rows_per_chunk
    from gdkl.numerics.factors import cholesky, eigenvectors, unreported_jitters
    from gdkl.numerics.lbfgs import Vector, minimise
    from gdkl.numerics.memory import GIB, available_memory, named_memory_errors, require_memory, tensor_bytes
    from gdkl.numerics.not_fitted import NotFittedError
    from gdkl.numerics.placement import resolve_device, resolve_dtype
    from gdkl.numerics.scratch import Scratch
    from gdkl.numerics.threads import (
        SHARED_SMALLEST,
        TRAINING_SMALLEST,
        limit_threads,
        thread_map,
        thread_pool,
        threads_for,
    )

#: Names by the module that has them, where that needs torch or scikit-learn.
_SLOW = {
    "chunks": ("DEFAULT_BUDGET", "chunk_slices", "map_rows", "rows_per_chunk"),
    "factors": ("cholesky", "eigenvectors", "unreported_jitters"),
    "lbfgs": ("Vector", "minimise"),
    "memory": ("GIB", "available_memory", "named_memory_errors", "require_memory", "tensor_bytes"),
    "not_fitted": ("NotFittedError",),
    "placement": ("resolve_device", "resolve_dtype"),
    "scratch": ("Scratch",),
    "threads": ("SHARED_SMALLEST", "TRAINING_SMALLEST", "limit_threads", "thread_map", "thread_pool", "threads_for"),
}

__all__ = [
    "CACHE_VARIABLE",
    "DEFAULT_BUDGET",
    "GIB",
    "SHARED_SMALLEST",
    "TRAINING_SMALLEST",
    "DataError",
    "DataWarning",
    "GdklError",
    "GdklWarning",
    "InterruptedFitWarning",
    "MemoryLimitError",
    "MissingPackageError",
    "ModelFileError",
    "NotFittedError",
    "NotPositiveDefiniteError",
    "NumericsError",
    "NumericsWarning",
    "OptionError",
    "Scratch",
    "Vector",
    "available_memory",
    "cache_dir",
    "cholesky",
    "chunk_slices",
    "eigenvectors",
    "file_beside",
    "limit_threads",
    "map_rows",
    "minimise",
    "named_memory_errors",
    "require_memory",
    "resolve_device",
    "resolve_dtype",
    "rows_per_chunk",
    "tensor_bytes",
    "thread_map",
    "thread_pool",
    "threads_for",
    "unreported_jitters",
    "write_atomically",
]


def __getattr__(name: str) -> Any:
    for module, names in _SLOW.items():
        if name in names:
            return getattr(import_module(f"gdkl.numerics.{module}"), name)
    raise AttributeError(f"module 'gdkl.numerics' has no attribute {name!r}")
