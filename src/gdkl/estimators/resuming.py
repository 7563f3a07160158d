"""Fits that may be killed: which fit a checkpoint belongs to.

Only an identical fit may resume: its files' names carry digests of the estimator's options, the seed, the library's
version and the data. A loader may yield its batches in another order in every process; then the user is warned.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any, cast

import joblib
from numpy.typing import NDArray
from torch import Tensor, nn

from gdkl._version import __version__
from gdkl.estimators.presets import Preset
from gdkl.infinite import InfiniteNetwork
from gdkl.numerics import OptionError
from gdkl.training import Checkpoint, CheckpointWarning, RunCheckpoint, TrainingOutcome

#: Options that do not change what is learned.
_WITHOUT_EFFECT = ("verbose", "callbacks", "random_state")


class FitCheckpoints:
    """The checkpoints of one call of ``fit``, identified by options, seed, data and, of a loader, its order."""

    def __init__(self, checkpoint: Checkpoint, estimator: Any, seed: int, data: str, order: str | None = None):
        options = {
            name: _identifiable(value)
            for name, value in estimator.get_params(deep=False).items()
            if name not in _WITHOUT_EFFECT
        }
        try:
            fit = f"{type(estimator).__name__}-{_short((__version__, seed, options))}"
        except Exception as error:  # whatever cannot be pickled
            raise OptionError(
                f"a Checkpoint cannot identify the options of this fit ({str(error).splitlines()[0]}): pass functions "
                "that are defined in a module, not lambdas."
            ) from error
        self._checkpoint = checkpoint
        self._name = f"{fit}-{_short(data)}" if order is None else _loader_name(checkpoint, fit, _short(data), order)
        self._made: list[RunCheckpoint] = []
        self.of(0).check_writable()

    def of(self, rows: int) -> RunCheckpoint:
        """The checkpoints of training on so many rows: one call of ``fit`` may train on some rows and on all."""
        made = self._checkpoint.for_run(f"{self._name}-{rows}")
        self._made.append(made)
        return made

    def end(self, outcome: TrainingOutcome | None) -> None:
        """Remove the files of a fit that has ended; one that was interrupted may be resumed."""
        if outcome is None or not outcome.interrupted:
            for checkpoint in self._made:
                checkpoint.remove()


def _short(value: Any) -> str:
    return cast(str, joblib.hash(value))[:16]


def digest(*arrays: NDArray[Any]) -> str:
    """What identifies arrays: shapes, types and every value.

    Example:
        >>> import numpy as np
        >>> digest(np.zeros(3)) == digest(np.zeros(3)), digest(np.zeros(3)) == digest(np.ones(3))
        (True, False)
    """
    return cast(str, joblib.hash(list(arrays)))


def _identifiable(value: Any) -> Any:
    """An option as something whose hash is the same in another process."""
    if isinstance(value, Preset):
        return value.set_fields()
    if isinstance(value, InfiniteNetwork):
        return repr(value)
    if isinstance(value, nn.Module):
        return type(value).__qualname__, str(value), {k: _identifiable(v) for k, v in value.state_dict().items()}
    if isinstance(value, Tensor):
        return value.detach().cpu().float().numpy()
    return value


def _loader_name(checkpoint: Checkpoint, fit: str, data: str, order: str) -> str:
    """The name of a fit to a loader, after a look at the files that are there."""
    pattern = re.compile(re.escape(fit) + r"-([0-9a-f]{16})-([0-9a-f]{16})-\d+\.\d+\.checkpoint")
    files = Path(checkpoint.folder).glob("*.checkpoint")
    found = sorted(((file.stat().st_mtime, file.name) for file in files if pattern.fullmatch(file.name)), reverse=True)
    known = [cast("re.Match[str]", pattern.fullmatch(name)) for _, name in found]
    same_rows = [match for match in known if match[1] == data]
    if not known or any(match[2] == order for match in same_rows):
        return f"{fit}-{data}-{order}"
    if same_rows:
        warnings.warn(
            f"the loader yields its rows in another order than when {same_rows[0][0]} was written: the fit resumes "
            "from there, but not to the model of an unbroken fit. Give its sampler or generator the same seed before "
            "each fit, or let it draw from torch's own random numbers.",
            CheckpointWarning,
            stacklevel=6,
        )
        return f"{fit}-{data}-{same_rows[0][2]}"
    warnings.warn(
        f"the loader does not yield the batches that {known[0][0]} was learned from (other rows, or batches of "
        "another size): the fit starts anew, and that file stays. To resume give the same data, and the same seed to "
        "whatever draws it; else remove it.",
        CheckpointWarning,
        stacklevel=6,
    )
    return f"{fit}-{data}-{order}"
