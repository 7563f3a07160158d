"""Adam without its ceremony: torch's own fused update, called directly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam


class _Group(NamedTuple):
    """A parameter group and its state as the update takes them."""

    options: dict[str, Any]
    parameters: list[Tensor]
    averages: list[Tensor]
    squares: list[Tensor]
    steps: list[Tensor]


class LeanAdam(torch.optim.Adam):
    """`torch.optim.Adam`, with the same state and the same numbers, and a way past what surrounds its update.

    `torch.optim.Optimizer.step` looks up hooks, a profiler, graph captures and every parameter's state: twice the time
    of the update itself for a small network. `advance` does so once and then keeps the lists.

    Args:
        parameters: Parameters, or groups of them with options.
        learning_rate: Its first value.
        memory: β₂.

    Example:
        >>> weight = torch.ones(1, requires_grad=True)
        >>> adam = LeanAdam([weight], learning_rate=0.5)
        >>> weight.square().sum().backward()
        >>> adam.advance()
        >>> print(round(weight.item(), 6))
        0.5
    """

    def __init__(
        self, parameters: Iterable[Tensor] | Iterable[dict[str, Any]], learning_rate: float, memory: float = 0.999
    ):
        super().__init__(parameters, lr=learning_rate, betas=(0.9, memory), fused=True)
        self._groups: list[_Group] | None = None

    def advance(self) -> None:
        """One step, as `step` takes it."""
        if self._groups is None or any(value.grad is None for group in self._groups for value in group.parameters):
            self.step()
            self._groups = self._collect()
            return
        with torch.no_grad():
            for options, parameters, averages, squares, steps in self._groups:
                gradients = [value.grad for value in parameters if value.grad is not None]
                first, second = options["betas"]
                adam(
                    parameters, gradients, averages, squares, [], steps, fused=True,
                    amsgrad=False, beta1=first, beta2=second, lr=options["lr"],
                    weight_decay=options["weight_decay"], eps=options["eps"], maximize=False,
                )  # fmt: skip

    def clear_gradients(self) -> None:
        """What `zero_grad` does."""
        for group in self.param_groups:
            for value in group["params"]:
                value.grad = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self._groups = None
        super().load_state_dict(state_dict)

    def _collect(self) -> list[_Group] | None:
        """The groups' lists, or None as long as a parameter has had no gradient yet."""
        groups: list[_Group] = []
        for options in self.param_groups:
            parameters = [value for value in options["params"] if value.requires_grad]
            states: list[dict[str, Tensor]] = [self.state.get(value, {}) for value in parameters]
            if not all(states):
                return None
            averages, squares, steps = ([state[key] for state in states] for key in ("exp_avg", "exp_avg_sq", "step"))
            groups.append(_Group(options, parameters, averages, squares, steps))
        return groups
