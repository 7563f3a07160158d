"""Several networks of one architecture run as one: parameters stacked, one batched product per layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state


class Members(nn.Module):
    """Networks of one architecture, each applied to its own rows.

    One member is called as it is; several have their parameters stacked along a new first dimension and run
    through `torch.vmap`, or one after the other where a layer (such as an LSTM) has no rule for that.

    Example:
        >>> Members([nn.Linear(3, 2), nn.Linear(3, 2)])(torch.zeros(2, 5, 3)).shape
        torch.Size([2, 5, 2])
    """

    def __init__(self, networks: Sequence[nn.Module]):
        super().__init__()
        self.count = len(networks)
        self._batched = True
        # The architecture, without parameters of its own: hidden in a list from nn.Module's registration.
        self._template: list[nn.Module] = []
        # Copies of it that no call is using: a call puts the parameters into one, and threads may call at once.
        self._idle: list[nn.Module] = []
        if self.count == 1:
            self.single = networks[0]
            return
        parameters, buffers = stack_module_state(list(networks))
        self._template.append(deepcopy(networks[0]).to("meta"))
        self._names = [*parameters, *buffers]
        self.stacked = nn.ParameterList([nn.Parameter(value.detach()) for value in parameters.values()])
        # Registered by number, because the networks' own names have dots in them.
        for index, value in enumerate(buffers.values()):
            self.register_buffer(f"stacked_buffer_{index}", value.detach())

    @property
    def template(self) -> nn.Module:
        """A network of the members' architecture."""
        return self.single if self.count == 1 else self._template[0]

    def forward(self, rows: Tensor) -> Tensor:
        """Features ``(members, n, p)`` of rows ``(members, n, ...)``."""
        if self.count == 1:
            return _checked(self.single(rows[0])).unsqueeze(0)
        try:
            template = self._idle.pop()
        except IndexError:
            template = deepcopy(self._template[0])
        try:
            return self._run(template.train(self.training), rows)
        finally:
            self._idle.append(template)

    def _run(self, template: nn.Module, rows: Tensor) -> Tensor:
        """Features by a copy of the template that is this call's alone."""

        def one(state: dict[str, Tensor], x: Tensor) -> Tensor:
            return _checked(functional_call(template, state, (x,)))

        state = self._state()
        if self._batched:
            try:
                return cast("Callable[..., Tensor]", torch.vmap(one, randomness="different"))(state, rows)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:
                self._batched = False
        return torch.stack([one({name: value[k] for name, value in state.items()}, rows[k]) for k in range(self.count)])

    def select(self, part: slice) -> Members:
        """Some of several members; their parameters and buffers are views of those of all."""
        network = deepcopy(self._template[0])
        state = {name: value.detach()[part] for name, value in self._state().items()}
        count = len(range(self.count)[part])
        if count == 1:
            for name, value in state.items():
                owner, _, last = name.rpartition(".")
                whole = self._state()[name]
                own = nn.Parameter(value[0]) if isinstance(whole, nn.Parameter) else value[0]
                setattr(network.get_submodule(owner), last, own)
            return Members([network.train(self.training)])
        chosen = copy(self)
        chosen.count, chosen._template, chosen._idle = count, [network], []
        chosen._modules, chosen._parameters, chosen._buffers = {}, {}, {}
        values = list(state.values())
        chosen.stacked = nn.ParameterList([nn.Parameter(value) for value in values[: len(self.stacked)]])
        for index, value in enumerate(values[len(self.stacked) :]):
            chosen.register_buffer(f"stacked_buffer_{index}", value)
        return chosen

    def _state(self) -> dict[str, Tensor]:
        """Stacked parameters and buffers by their names in a network."""
        return dict(zip(self._names, [*self.stacked, *self.buffers()], strict=True))


def _checked(features: Any) -> Tensor:
    if not isinstance(features, Tensor):
        raise TypeError(f"a network must return a tensor; got {type(features).__name__}")
    return features
