"""A training run that can be killed: its state in a file, and the way back from it."""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from gdkl.numerics import DataError, write_atomically


@dataclass
class Checkpoint:
    """Saves parameters, buffers, the optimiser's state and the random generators now and then.

    A run that goes on from a checkpoint takes the steps that it would have taken: splits and samples are those of the
    steps still to come, dropout those of the generators' saved states.

    Attributes:
        path: Where the state is kept; its folder must exist.
        run: What identifies the run. A file of another run is not gone on from, and is overwritten.
        every_seconds: Time between two saves.

    Example:
        >>> Checkpoint(Path("run.pt"), run="n=200, seed=0").every_seconds
        60.0
    """

    path: Path
    run: str
    every_seconds: float = 60.0
    _saved_at: float = field(default_factory=time.monotonic)

    def restore(self, module: nn.Module, optimiser: torch.optim.Optimizer, device: torch.device) -> int:
        """Put the saved state back and return the number of steps done; 0 where there is none for this run.

        Raises:
            DataError: If the file cannot be read; the message says to remove it.
        """
        if not self.path.exists():
            return 0
        try:
            state = cast("Mapping[str, Any]", torch.load(self.path, map_location="cpu", weights_only=True))
            if state["run"] != self.run:
                return 0
            module.load_state_dict(state["module"])
            optimiser.load_state_dict(state["optimiser"])
            torch.set_rng_state(cast(Tensor, state["generator"]))
            if device.type == "cuda":
                torch.cuda.set_rng_state(cast(Tensor, state["device_generator"]), device)
            return int(state["step"])
        except (OSError, KeyError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
            reason = str(error).splitlines()[0].partition(". ")[0] if str(error) else type(error).__name__
            raise DataError(
                f"{self.path} is not a checkpoint of this run ({reason}): remove it to start anew."
            ) from error

    def save_if_due(self, step: int, module: nn.Module, optimiser: torch.optim.Optimizer, device: torch.device) -> None:
        """Save the state after a step, if the last time is long enough ago."""
        if time.monotonic() - self._saved_at >= self.every_seconds:
            self.save(step, module, optimiser, device)

    def save(self, step: int, module: nn.Module, optimiser: torch.optim.Optimizer, device: torch.device) -> None:
        """Save the state after a step, whole or not at all."""
        state = training_state(self.run, step, module, optimiser, device)
        stream = io.BytesIO()
        torch.save(state, stream)
        write_atomically(self.path, lambda file: file.write(stream.getbuffer()))
        self._saved_at = time.monotonic()

    def remove(self) -> None:
        """Forget the run: its result is written."""
        self.path.unlink(missing_ok=True)


def training_state(
    run: str, step: int, module: nn.Module, optimiser: torch.optim.Optimizer, device: torch.device
) -> dict[str, Any]:
    """Everything that a run needs to go on after a step as if it had never stopped."""
    state: dict[str, Any] = {
        "run": run,
        "step": step,
        "module": module.state_dict(),
        "optimiser": optimiser.state_dict(),
        "generator": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["device_generator"] = torch.cuda.get_rng_state(device)
    return state
