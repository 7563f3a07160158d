"""Fits that may be killed: which fit a checkpoint is of, and where it is kept.

A checkpoint is gone on from by the very same fit alone: its name and its content carry digests of the estimator's
options, the seed, the library's version and the data. The batches of a loader may come otherwise in every process, for
all that can be done about it: then the user is told.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gdkl._version import __version__
from gdkl.infinite import InfiniteNetwork
from gdkl.numerics import OptionError, chunk_slices
from gdkl.training import CheckpointWarning, RotatingCheckpoint, TrainingOutcome

#: Time between two saves.
EVERY_SECONDS = 30.0

#: Options that do not change what is learned.
_WITHOUT_EFFECT = ("checkpoint_dir", "verbose", "callbacks", "random_state")

_PART_ROWS = 50_000

#: Where in memory a function lies, which the words for a network may tell.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def check_checkpoint_dir(folder: Any, inference: str, random_state: Any) -> None:
    """Refuse checkpoints that could not be gone on from.

    Raises:
        OptionError: If they could not.
    """
    if folder is None:
        return
    if not isinstance(folder, (str, os.PathLike)):
        raise OptionError(f"checkpoint_dir={folder!r} is not allowed: give the path of a folder, or None.")
    if inference == "exact":
        raise OptionError("checkpoint_dir is for inference='sparse' or 'auto': exact inference keeps no checkpoints.")
    if random_state is None:
        raise OptionError("checkpoint_dir needs a random_state, such as 0: a fit goes on only with the seed it had.")


class FitCheckpoints:
    """The checkpoints of one call of ``fit``.

    Args:
        folder: Where they are kept; made if need be.
        estimator: Whose options count.
        seed: Of the fit.
        data: What identifies the data, see `digest`; of a loader, the rows in any order.
        order: Of a loader, what identifies its batches in their order; None for arrays.

    Raises:
        DataError: If the folder cannot be written to.
    """

    def __init__(self, folder: str | os.PathLike[str], estimator: Any, seed: int, data: str, order: str | None = None):
        options = {
            name: describe(value)
            for name, value in estimator.get_params(deep=False).items()
            if name not in _WITHOUT_EFFECT
        }
        identity = {"version": __version__, "seed": seed, "options": options}
        fit = f"{type(estimator).__name__}-{_short(json.dumps(identity, sort_keys=True))}"
        name = f"{fit}-{_short(data)}" if order is None else _name_of_loader(Path(folder), fit, _short(data), order)
        self._path = Path(folder) / name
        self._made: list[RotatingCheckpoint] = []
        self.of(0).check_writable()

    def of(self, rows: int) -> RotatingCheckpoint:
        """The checkpoints of training on so many rows: one call of ``fit`` may train twice, on some rows and on all."""
        path = self._path.with_name(f"{self._path.name}-{rows}")
        checkpoint = RotatingCheckpoint(path, run=path.name, every_seconds=EVERY_SECONDS)
        self._made.append(checkpoint)
        return checkpoint

    def end(self, outcome: TrainingOutcome | None) -> None:
        """Remove the files of a fit that has ended; one that was interrupted or failed may be gone on with."""
        if outcome is None or not (outcome.interrupted or outcome.failed):
            for checkpoint in self._made:
                checkpoint.remove()


def _short(words: str) -> str:
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def _name_of_loader(folder: Path, fit: str, data: str, order: str) -> str:
    """What the files of a fit to a loader are named after, once it was compared with those that are there.

    Args:
        folder: Where they are.
        fit: What identifies the options and the seed.
        data: What identifies the rows.
        order: What identifies the order of the batches, 16 digits.
    """
    pattern = re.compile(re.escape(fit) + r"-([0-9a-f]{16})-([0-9a-f]{16})-\d+\.\d+\.checkpoint")
    found = [(match, file) for file in folder.glob("*.checkpoint") if (match := pattern.fullmatch(file.name))]
    same_rows = [(match, file) for match, file in found if match[1] == data]
    if any(match[2] == order for match, _ in same_rows):
        return f"{fit}-{data}-{order}"
    if same_rows:
        match, file = max(same_rows, key=lambda pair: pair[1].stat().st_mtime)
        warnings.warn(
            f"the loader yields its rows in another order than when {file.name} was written: the fit goes on from "
            "there, but not to the model of an unbroken fit. Give its sampler or generator the same seed before each "
            "fit, or let it draw from torch's own random numbers.",
            CheckpointWarning,
            stacklevel=7,
        )
        return f"{fit}-{data}-{match[2]}"
    if found:
        file = max((file for _, file in found), key=lambda file: file.stat().st_mtime)
        warnings.warn(
            f"the loader does not yield the batches that {file.name} was learned from (other rows, or batches of "
            "another size): the fit starts anew, and that file stays. To go on from it give the same data, and the "
            "same seed to whatever draws it; else remove it.",
            CheckpointWarning,
            stacklevel=7,
        )
    return f"{fit}-{data}-{order}"


def digest(*arrays: NDArray[Any]) -> str:
    """What identifies arrays: shapes, types and every value, read a part at a time.

    Example:
        >>> digest(np.zeros(3)) == digest(np.zeros(3)), digest(np.zeros(3)) == digest(np.ones(3))
        (True, False)
    """
    found = hashlib.blake2b(digest_size=16)
    for array in arrays:
        found.update(f"{array.shape} {array.dtype}".encode())
        for part in chunk_slices(len(array), _PART_ROWS):
            found.update(np.ascontiguousarray(array[part]).tobytes())
    return found.hexdigest()


def describe(value: Any) -> str:
    """An option in words that are the same in another process, and others for another option.

    Of a network or a kernel its structure and every number in it; of a function its code, its defaults and what it was
    closed over; of another object what it holds.

    Example:
        >>> describe([100, 20]), describe("auto")
        ('[100, 20]', "'auto'")
    """
    return _describe(value, frozenset())


def _describe(value: Any, above: frozenset[int]) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str, bytes, torch.device, torch.dtype, InfiniteNetwork)):
        return repr(value)
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if id(value) in above:
        return name
    above = above | {id(value)}
    if isinstance(value, nn.Module):
        return (
            f"{_ADDRESS.sub('', repr(value))} {digest(*(_numbers(tensor) for tensor in value.state_dict().values()))}"
        )
    if isinstance(value, Tensor):
        return digest(_numbers(value))
    if isinstance(value, (list, tuple, np.ndarray)):
        return "[" + ", ".join(_describe(one, above) for one in cast("list[Any]", value)) + "]"
    if isinstance(value, dict):
        held = cast("dict[Any, Any]", value)
        return "{" + ", ".join(f"{key!r}: {_describe(one, above)}" for key, one in held.items()) + "}"
    if isinstance(value, partial):
        return f"partial {_describe([value.func, value.args, value.keywords], above)}"
    if isinstance(value, MethodType):
        return f"{value.__qualname__} of {_describe(value.__self__, above)}"
    if isinstance(value, FunctionType):
        code = value.__code__
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        constants = [one for one in code.co_consts if not isinstance(one, CodeType)]
        parts = [constants, list(code.co_names), value.__defaults__, value.__kwdefaults__, cells]
        return f"{value.__module__}.{value.__qualname__} {code.co_code.hex()} {_describe(parts, above)}"
    if isinstance(value, (type, BuiltinFunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    return f"{name} {_describe(getattr(value, '__dict__', None), above)}"


def _numbers(tensor: Tensor) -> NDArray[Any]:
    flat = tensor.detach().cpu().reshape(-1)
    return (flat.float() if flat.dtype == torch.bfloat16 else flat).numpy()
