"""The cache folder, and files that are whole or not there: written beside their place, synced, then renamed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

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


def file_beside(target: Path) -> Path:
    """A new, empty file in the folder of another, to be renamed into its place when it is complete.

    Unlike the files of `tempfile` it has the permissions that the user's umask leaves, as every other file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file_beside(Path(folder) / "a.bin").suffix
        '.part'
    """
    while True:
        path = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            continue
        return path


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Write a file so that a reader, or a crash at any moment, sees the old state or the new one.

    The folder must exist; where the file cannot be written nothing is left behind.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_atomically(f"{folder}/a.bin", lambda file: file.write(b"abc"))
        ...     Path(f"{folder}/a.bin").read_bytes()
        b'abc'
    """
    target = Path(path)
    temporary = file_beside(target)
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
