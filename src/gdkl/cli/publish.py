"""Putting a folder of results in place as a whole, or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from gdkl.numerics import DataError


def check_folder(folder: Path, names: Collection[str]) -> None:
    """Refuse a folder that results could not go to, before the work that makes them.

    Args:
        folder: Where they shall go. It may exist if it holds nothing but an earlier run's files.
        names: Names of the files that will be written.
    """
    if folder.is_dir():
        foreign = sorted(entry.name for entry in folder.iterdir() if entry.name not in names or not entry.is_file())
        if foreign:
            raise DataError(
                f"the folder {folder} holds files that are not of an earlier run ({foreign[0]}): give another with "
                "--output."
            )
    elif folder.exists() or folder.is_symlink():
        raise DataError(f"{folder} is not a folder: give another name with --output.")
    parent = _nearest_existing(folder.absolute().parent)
    try:
        # Trying is the only sure way to know: permissions say nothing of read-only or special file systems.
        os.rmdir(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=parent))
    except OSError as error:
        raise DataError(
            f"cannot write to {parent} ({error.strerror or error}): give another folder with --output."
        ) from error


def _nearest_existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def publish(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write all files into a temporary folder beside the target and move it into place.

    A failure on the way leaves the target as it was, and nothing else behind.

    Args:
        folder: The target; an earlier run's folder is replaced.
        files: Contents by file name.
    """
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
        raise DataError(
            f"cannot write {folder} ({error.strerror or error}): give another folder with --output."
        ) from error
