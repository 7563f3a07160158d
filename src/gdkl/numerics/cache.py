"""The library's cache folder: downloaded datasets and compiled kernels."""

from __future__ import annotations

import os
from pathlib import Path

#: Folder for what can be downloaded or computed again, in place of the platform's usual one.
CACHE_VARIABLE = "GDKL_CACHE"


def cache_dir() -> Path:
    """Folder for downloads and compiled kernels; it may not exist yet.

    Example:
        >>> isinstance(cache_dir(), Path)
        True
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    import pooch  # noqa: PLC0415  (it pulls in an HTTP library, which a local file does not need)

    return Path(pooch.os_cache("gdkl"))
