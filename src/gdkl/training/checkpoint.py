"""Checkpoints: the state of a run that may be killed, the last two of it, each with its checksum."""

from __future__ import annotations

import glob
import hashlib
import io
import os
import pickle
import re
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from gdkl.numerics import DataError, GdklWarning, OptionError, write_atomically
from gdkl.training.callbacks import Callback

#: How many checkpoints are kept: the newest, and the one before in case the newest is damaged.
_KEPT = 2

_MAGIC = b"gdkl-checkpoint-1\n"
_DIGEST_BYTES = 32


class CheckpointWarning(GdklWarning):
    """A checkpoint could not be written or read; training continues."""


class Checkpoint(Callback):
    """Saves the state of a fit now and then, so that the same fit resumes after it was killed.

    Pass it among the callbacks of an estimator, which then gives the training loop a `RunCheckpoint` of the very fit.

    Args:
        folder: Where files are saved; made if need be.
        every_seconds: Time between two saves.

    Example:
        >>> Checkpoint("runs", every_seconds=60).for_run("GDKLRegressor-0a1b").file(1500).name
        'GDKLRegressor-0a1b.00001500.checkpoint'
    """

    #: The loop saves, not the callback: it has nothing to do after a step.
    every = sys.maxsize
    can_wait = True

    def __init__(self, folder: str | os.PathLike[str], every_seconds: float = 30.0):
        if not isinstance(folder, (str, os.PathLike)):
            raise OptionError(f"folder={folder!r} of a Checkpoint is not allowed: give the path of a folder.")
        if not every_seconds >= 0:
            raise OptionError(f"every_seconds={every_seconds!r} of a Checkpoint must not be negative.")
        self.folder = Path(folder)
        self.every_seconds = float(every_seconds)

    def for_run(self, identity: str) -> RunCheckpoint:
        """The checkpoint of one run.

        Args:
            identity: What identifies the run: only a run of the same identity resumes from its files. They are named
                after it, or after its digest where it is no name of a file.
        """
        named = re.fullmatch(r"[\w.+-]{1,150}", identity) is not None
        name = identity if named else hashlib.sha256(identity.encode()).hexdigest()[:16]
        return RunCheckpoint(self.folder / name, run=identity, every_seconds=self.every_seconds)


@dataclass
class RunCheckpoint:
    """Saves parameters, buffers, the optimiser's state and the random generators of one run.

    Files are written beside their place, synced and renamed, and each begins with its own SHA-256: whatever moment the
    process is killed at, there is a whole checkpoint, if there was one before. A full disk does not stop training: the
    checkpoints that are there stay, and a warning says so.

    Attributes:
        path: Files are named after it, with the number of steps.
        run: What identifies the run. A run does not resume from files of another, and its next save removes them.
        every_seconds: Time between two saves; None not to go by time.
        every_steps: Steps between two saves; None not to go by steps.

    Example:
        >>> RunCheckpoint(Path("runs/a"), run="seed 0", every_steps=500).file(1500).name
        'a.00001500.checkpoint'
    """

    path: Path
    run: str
    every_seconds: float | None = 60.0
    every_steps: int | None = None
    _saved_at: float = field(default_factory=time.monotonic)
    _warned: bool = False

    def file(self, step: int) -> Path:
        """Where the state after a step is saved."""
        return self.path.with_name(f"{self.path.name}.{step:08d}.checkpoint")

    def files(self) -> list[Path]:
        """All checkpoints that are there, the newest first."""
        pattern = re.compile(re.escape(self.path.name) + r"\.(\d{8,})\.checkpoint")
        found = [
            (match, file) for file in self.path.parent.glob("*.checkpoint") if (match := pattern.fullmatch(file.name))
        ]
        return [file for _, file in sorted(found, key=lambda pair: -int(pair[0].group(1)))]

    def check_writable(self) -> None:
        """Refuse a folder that cannot be written to, before training and not after.

        Raises:
            DataError: If it cannot.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            trial = self.path.with_name(f".{self.path.name}.trial")
            write_atomically(trial, lambda file: file.write(b"\0" * 4096))
            trial.unlink()
        except OSError as error:
            raise DataError(
                f"cannot write checkpoints to {self.path.parent}: {error.strerror or error}. Give another folder."
            ) from error

    def restore(self, module: nn.Module, optimiser: torch.optim.Optimizer, device: torch.device) -> int:
        """Load the newest whole state of this run and return the number of steps done; 0 where there is none."""
        for file in self.files():
            try:
                state = read_checkpoint(file)
                if state["run"] != self.run:
                    continue
                module.load_state_dict(state["module"])
                optimiser.load_state_dict(state["optimiser"])
                torch.set_rng_state(cast(Tensor, state["generator"]))
                if device.type == "cuda" and "device_generator" in state:
                    torch.cuda.set_rng_state(cast(Tensor, state["device_generator"]), device)
                return int(state["step"])
            except (OSError, KeyError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                warnings.warn(
                    f"cannot resume from {file} ({reason}): the checkpoint before it is tried.",
                    CheckpointWarning,
                    stacklevel=2,
                )
        return 0

    def due(self, step: int) -> bool:
        """Whether the state after a step is to be saved."""
        if self.every_steps is not None and step % self.every_steps == 0:
            return True
        return self.every_seconds is not None and time.monotonic() - self._saved_at >= self.every_seconds

    def save(self, step: int, module: nn.Module, optimiser: torch.optim.Optimizer, device: torch.device) -> bool:
        """Save the state after a step, whole or not at all, and remove all but the last two.

        Returns:
            Whether it was written; a warning says why not.
        """
        state: dict[str, Any] = {
            "run": self.run,
            "step": step,
            "module": module.state_dict(),
            "optimiser": optimiser.state_dict(),
            "generator": torch.get_rng_state(),
        }
        if device.type == "cuda":
            state["device_generator"] = torch.cuda.get_rng_state(device)
        self._saved_at = time.monotonic()
        try:
            write_checkpoint(self.file(step), state)
        except OSError as error:
            if not self._warned:
                self._warned = True
                kept = self.files()
                stays = f"that of {kept[0].name} stays" if kept else "there is none yet"
                warnings.warn(
                    f"the checkpoint of step {step} cannot be written to {self.path.parent} "
                    f"({error.strerror or error}): training continues, {stays}. Make room, or the run cannot be "
                    "resumed.",
                    CheckpointWarning,
                    stacklevel=2,
                )
            return False
        self._warned = False
        for old in self.files()[_KEPT:]:
            old.unlink(missing_ok=True)
        return True

    def remove(self) -> None:
        """Remove all files of the run: its result is written."""
        # A process that was killed while it wrote has left a file that never got its name.
        for file in [*self.files(), *self.path.parent.glob(f".{glob.escape(self.path.name)}.*.part")]:
            file.unlink(missing_ok=True)


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state with its checksum, atomically."""
    stream = io.BytesIO()
    torch.save(dict(state), stream)
    content = stream.getbuffer()
    digest = hashlib.sha256(content).digest()

    def write(file: Any) -> None:
        file.write(_MAGIC + digest)
        file.write(content)

    write_atomically(path, write)


def read_checkpoint(path: Path) -> Mapping[str, Any]:
    """Read a state whose checksum is right.

    Raises:
        ValueError: If the file is damaged.
    """
    content = path.read_bytes()
    start = len(_MAGIC) + _DIGEST_BYTES
    payload = memoryview(content)[start:]
    if not content.startswith(_MAGIC) or hashlib.sha256(payload).digest() != content[len(_MAGIC) : start]:
        raise ValueError("it is damaged")
    return cast("Mapping[str, Any]", torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True))
