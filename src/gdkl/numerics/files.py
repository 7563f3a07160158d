"""Files that are whole or not there: written beside their place, synced, then renamed into it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Write a file so that a reader, or a crash at any moment, sees the old state or the new one.

    Args:
        path: Where to; its folder must exist.
        write: Writes the content to the open file it is given.

    Raises:
        OSError: If the file cannot be written; nothing is left behind then.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_atomically(f"{folder}/a.bin", lambda file: file.write(b"abc"))
        ...     Path(f"{folder}/a.bin").read_bytes()
        b'abc'
    """
    target = Path(path)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(cast(BinaryIO, file))
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files for the owner alone; a result is for whoever the user's umask lets read it.
        Path(temporary).chmod(0o666 & ~_umask())
        os.replace(temporary, target)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
