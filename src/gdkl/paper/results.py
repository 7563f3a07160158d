"""Result files: every claim of quality is one, with seeds, settings and versions, made by a command."""

from __future__ import annotations

import json
import platform
import tempfile
import warnings
from collections.abc import Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch

from gdkl._version import __version__
from gdkl.numerics import DataError, DataWarning, write_atomically


def versions(device: torch.device) -> dict[str, str]:
    """What a result may depend on beside its settings."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "gdkl": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gpytorch": gpytorch.__version__,
        "numpy": np.__version__,
        "device": f"{device.type}: {name}",
    }


def check_writable(folder: Path) -> None:
    """Make a folder for results and refuse one that cannot be written to, before hours of work and not after."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error.strerror or error}.") from error


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result as JSON, atomically; a file of more splits is put aside, with a warning, and not replaced.

    A trial of a few splits with other settings would otherwise cost the hours that a whole result took.
    """
    content = json.dumps(result, indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _put_aside(path, len(result.get("splits", ())))
        write_atomically(path, lambda file: file.write(content.encode()))
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}.") from error


def _put_aside(path: Path, splits: int) -> None:
    """Give another name to a result file that has more splits than the one that is to take its place."""
    try:
        there = len(read_result(path)["splits"])
    except DataError:
        return
    if there <= splits:
        return
    names = (path.with_suffix(f".{there}-splits{more}.json") for more in chain([""], (f"-{i}" for i in count(2))))
    target = next(name for name in names if not name.exists())
    path.rename(target)
    warnings.warn(
        f"{path} had {there} splits, more than the {splits} of the new result: it was not replaced but renamed to "
        f"{target.name}.",
        DataWarning,
        stacklevel=3,
    )


def read_result(path: Path) -> dict[str, Any]:
    """Read a result file."""
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a result file: {error}.") from error
    if not isinstance(result, dict) or "splits" not in result:
        raise DataError(f"{path} is not a result file: it has no 'splits'.")
    return result
