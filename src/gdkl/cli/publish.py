"""Putting a folder of results in place as a whole, or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from gdkl.numerics import DataError


def check_folder(folder: Path, names: Collection[str]) -> None:
    """Refuse a folder that holds more than an earlier run's files, or cannot be written to, before any work."""
    if folder.is_dir():
        foreign = sorted(entry.name for entry in folder.iterdir() if entry.name not in names or not entry.is_file())
        if foreign:
            reason = f"holds files that are not of an earlier run ({foreign[0]})"
            raise DataError(f"the folder {folder} {reason}: give another with --output.")
    elif folder.exists() or folder.is_symlink():
        raise DataError(f"{folder} is not a folder: give another name with --output.")
    parent = next(path for path in folder.absolute().parents if path.exists())
    try:
        # Trying is the only sure way to know: permissions say nothing of read-only or special file systems.
        os.rmdir(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=parent))
    except OSError as error:
        raise _not_writable(f"to {parent}", error) from error


def publish(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write all files beside the target, then replace it as a whole; a failure leaves it as it was."""
    check_folder(folder, files)
    folder = folder.absolute()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            fresh, old = scratch / "new", scratch / "old"
            fresh.mkdir()
            for name, content in files.items():
                (fresh / name).write_bytes(content)
            if folder.exists():
                folder.rename(old)
            try:
                fresh.rename(folder)
            except BaseException:
                if old.exists():
                    old.rename(folder)
                raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise _not_writable(str(folder), error) from error


def _not_writable(what: str, error: OSError) -> DataError:
    return DataError(f"cannot write {what} ({error.strerror or error}): give another folder with --output.")
