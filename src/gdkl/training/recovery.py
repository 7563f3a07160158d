"""What training does when numbers stop being finite: it goes back to a good state and takes smaller steps."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from gdkl.numerics import NumericsError, NumericsWarning
from gdkl.objectives import ObjectiveValue

#: Steps between looks at the objective, and between copies of the state that a failure goes back to. On a GPU each look
#: makes Python wait for the device.
_LOOK_EVERY = {"cpu": 1, "cuda": 50}
_KEEP_EVERY = {"cpu": 25, "cuda": 50}

#: How often one run goes back. Each time halves the learning rate: after more, hardly anything would be learned.
MOST_ROLLBACKS = 3


class Watch:
    """Looks at the objectives of the last steps together, and names the first that is not finite.

    Args:
        device: Where training runs.
    """

    def __init__(self, device: torch.device):
        self._every = _LOOK_EVERY.get(device.type, 50)
        self._pending: list[tuple[int, ObjectiveValue]] = []

    def add(self, step: int, objective: ObjectiveValue) -> None:
        """Take in the objective of a step, counted from 0; now and then look at those that came since the last look."""
        self._pending.append((step, objective))
        if len(self._pending) >= self._every:
            self.look()

    def look(self) -> None:
        """Raise a `NumericsError` that names the first bad step and its terms."""
        pending, self._pending = self._pending, []
        # A sum is finite if every value is.
        if not pending or bool(torch.stack([objective.value.sum() for _, objective in pending]).isfinite().all()):
            return
        for step, objective in pending:
            if not bool(torch.isfinite(objective.value).all()):
                broken = [name for name, term in objective.terms.items() if not bool(torch.isfinite(term).all())]
                raise NumericsError(
                    f"the objective of step {step + 1} is not finite (terms: {', '.join(broken) or 'their sum'})."
                )

    def forget(self) -> None:
        """Drop objectives that have not been looked at: their steps are undone."""
        self._pending = []

    def is_finite(self, module: nn.Module) -> bool:
        """Whether everything so far was finite: only then is a state worth saving. The loop reports what was not."""
        pending = list(self._pending)
        try:
            self.look()
            require_finite_parameters(module, 0)
        except NumericsError:
            self._pending = pending
            return False
        return True


class LastGood:
    """The last state of a run from which everything was finite: parameters, buffers and the optimiser's averages.

    A copy is taken every few steps. Training that fails goes back to it and on to the next step, with other rows, at
    half the learning rate; steps that are done are not taken again, because not every source of batches can go back.
    The rate and the count stand in the optimiser's groups, and so in checkpoints.

    Args:
        module: Owner of everything that is learned.
        optimiser: Whose averages belong to the parameters.
        device: Where training runs.
        n_iter: Steps that are planned.
    """

    def __init__(self, module: nn.Module, optimiser: torch.optim.Optimizer, device: torch.device, n_iter: int):
        self._module, self._optimiser, self._n_iter = module, optimiser, n_iter
        self._every = _KEEP_EVERY.get(device.type, 50)
        self._kept: list[Tensor] = []
        self._step = 0

    @property
    def rollbacks(self) -> int:
        """How often this run went back, before it was resumed from a checkpoint, too."""
        return int(self._optimiser.param_groups[0].get("rollbacks", 0))

    @property
    def rate_factor(self) -> float:
        """What learning rates are multiplied by."""
        return 0.5**self.rollbacks

    def due(self, step: int) -> bool:
        """Whether the state before a step, counted from 0, is to be kept."""
        return step % self._every == 0

    @torch.no_grad()
    def keep(self, step: int) -> None:
        """Copy the state after so many steps; into the memory of the copy before, once all averages are there."""
        live = self._tensors()
        if len(live) == len(self._kept):
            for kept, value in zip(self._kept, live, strict=True):
                kept.copy_(value)
        else:
            self._kept = [value.clone() for value in live]
        self._step = step

    @torch.no_grad()
    def go_back(self, error: NumericsError, step: int) -> None:
        """Restore the last good state after a failure in a step, counted from 0, and halve the learning rate.

        Raises:
            NumericsError: If the run has gone back often enough.
        """
        where = f"step {min(step + 1, self._n_iter)} of {self._n_iter}"
        if self.rollbacks >= MOST_ROLLBACKS:
            raise NumericsError(
                f"training stopped at {where}: {error} Before, it went back to good parameters with half the learning "
                f"rate {MOST_ROLLBACKS} times. Lower learning_rate, or look for what is not finite in your own "
                "network, kernel or data."
            ) from error
        live = self._tensors()
        if len(live) != len(self._kept):
            # There were no averages yet.
            self._optimiser.state.clear()
        for value, kept in zip(live, self._kept, strict=False):
            value.copy_(kept)
        count = self.rollbacks + 1
        for group in self._optimiser.param_groups:
            group["rollbacks"] = count
        warnings.warn(
            f"At {where} {error} Training goes on from the parameters after step {self._step} with half the learning "
            f"rate ({count} of at most {MOST_ROLLBACKS} times); lower learning_rate if this stays.",
            NumericsWarning,
            stacklevel=4,
        )

    def _tensors(self) -> list[Tensor]:
        states = self._optimiser.state.values()
        averages = (value for state in states for value in state.values() if isinstance(value, Tensor))
        return [*(value.detach() for value in self._module.state_dict().values()), *averages]


def require_finite_parameters(module: nn.Module, step: int) -> None:
    """Refuse parameters that are not finite after a step; buffers may be so on purpose, as a constraint's bound is."""
    if not all(bool(torch.isfinite(value).all()) for value in module.parameters()):
        raise NumericsError(f"a parameter is not finite after step {step}.")
