"""Results files: JSON lines, one per cell, appended so that a kill at any moment loses no finished cell."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar

from gdkl._version import __version__
from gdkl.numerics import DataError, DataWarning

#: A line: the fields of a `Cell`, "key", "scores", "seconds", "versions" and, where there are any, "details".
Line: TypeAlias = dict[str, Any]
T = TypeVar("T")


class Results:
    """The results of one experiment in one file, which need not exist yet."""

    def __init__(self, path: Path):
        self.path = path

    def lines(self) -> list[Line]:
        """All lines; a torn last one, of a process that was killed while it wrote, is left out with a warning."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise DataError(f"{self.path} cannot be read: {error.strerror or error}.") from error
        found: list[Line] = []
        rows = content.split(b"\n")
        for number, row in enumerate(rows, start=1):
            if not row.strip():
                continue
            line = _parsed(row)
            if line is None and number < len(rows):
                raise DataError(f"{self.path}, line {number} is not a result in JSON: mend or remove it.")
            if line is None:
                warnings.warn(f"{self.path}: the last line is incomplete and not used.", DataWarning, stacklevel=2)
            else:
                found.append(line)
        return found

    def by_key(self) -> dict[str, Line]:
        """Lines by the key of their cell."""
        return {line["key"]: line for line in self.lines() if "key" in line}

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line unless the file has one of its key; several processes may do so at the same time."""
        try:
            with self._locked() as file:
                content = file.read()
                whole = content[: content.rfind(b"\n") + 1]
                rest = content[len(whole) :]
                if rest and _parsed(rest) is None:
                    file.truncate(len(whole))
                    rest = b""
                if any(f'"key":"{line["key"]}"'.encode() in row for row in (*whole.splitlines(), rest)):
                    return
                text = json.dumps(line, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n"
                file.seek(0, os.SEEK_END)
                file.write((b"\n" if rest else b"") + text.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DataError(f"{self.path} cannot be written: {error.strerror or error}.") from error

    @contextmanager
    def _locked(self) -> Generator[BinaryIO]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # O_APPEND is not used: the position is set under the lock, after a torn line has been cut off.
        with open(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file  # closing the file releases the lock


def _parsed(row: bytes) -> Line | None:
    try:
        line = json.loads(row)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def grouped(items: Iterable[T], key: Callable[[T], str]) -> list[list[T]]:
    """Items of one key together, in the order of their first ones."""
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def check_writable(folder: Path) -> None:
    """Make a folder for results and refuse one that cannot be written to, before hours of work and not after."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error.strerror or error}.") from error


def versions(device: str) -> dict[str, str]:
    """What a result may depend on beside its settings."""
    import torch  # noqa: PLC0415  (reading results does not need it)

    from gdkl.numerics import resolve_device  # noqa: PLC0415

    place = resolve_device(device)
    name = torch.cuda.get_device_name(place) if place.type == "cuda" else platform.machine()
    found = {"gdkl": __version__, "python": platform.python_version(), "device": f"{place.type}: {name}"}
    for package in ("torch", "gpytorch", "numpy", "scikit-learn", "botorch", "catboost", "ngboost"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
