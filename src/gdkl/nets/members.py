"""Several networks of one shape, run as one: parameters stacked, one batched product a layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from gdkl.nets.mlp_pass import is_plain, mlp_pass


class Members(nn.Module):
    """Networks of one architecture, each applied to its own rows.

    One member is called as it is; several have their parameters stacked along a new first dimension and run
    through `torch.vmap`, so that ten small networks cost about as much as one.

    Args:
        networks: Modules of the same architecture.

    Example:
        >>> Members([nn.Linear(3, 2), nn.Linear(3, 2)])(torch.zeros(2, 5, 3)).shape
        torch.Size([2, 5, 2])
    """

    def __init__(self, networks: Sequence[nn.Module]):
        super().__init__()
        self.count = len(networks)
        # The architecture, without parameters of its own: hidden in a list from nn.Module's registration.
        self._template: list[nn.Module] = []
        self._plain_parameters: list[Tensor] = []
        if self.count == 1:
            self.single = networks[0]
            self._look_at_networks()
            return
        parameters, buffers = stack_module_state(list(networks))
        self._template.append(deepcopy(networks[0]).to("meta"))
        self._parameter_names = list(parameters)
        self._buffer_names = list(buffers)
        self.stacked = nn.ParameterList([nn.Parameter(value.detach()) for value in parameters.values()])
        self._look_at_networks()
        # Registered by number, because the networks' own names have dots in them.
        for index, value in enumerate(buffers.values()):
            self.register_buffer(f"stacked_buffer_{index}", value.detach())

    @property
    def template(self) -> nn.Module:
        """A network of the members' architecture."""
        return self.single if self.count == 1 else self._template[0]

    def train(self, mode: bool = True) -> Members:
        """Go to training or evaluation; whether the networks are plain, and without hooks, is looked at here alone."""
        super().train(mode)
        self._look_at_networks()
        return self

    def _look_at_networks(self) -> None:
        """Keep the parameters of our own MLP at hand: to find them again takes longer than a layer's product."""
        found: list[Tensor] = list(self.single.parameters() if self.count == 1 else self.stacked)
        self._plain_parameters = found if is_plain(self.template) else []

    def forward(self, rows: Tensor) -> Tensor:
        """Features ``(members, n, p)`` of rows ``(members, n, ...)``."""
        parameters = self.plain_parameters(rows)
        if parameters is not None:
            return mlp_pass(rows, parameters)
        if self.count == 1:
            features = self.single(rows[0])
            if not isinstance(features, Tensor):
                raise TypeError(f"a network must return a tensor; got {type(features).__name__}")
            return features.unsqueeze(0)
        parameters = dict(zip(self._parameter_names, self.stacked, strict=True))
        buffers = {
            name: cast(Tensor, getattr(self, f"stacked_buffer_{index}"))
            for index, name in enumerate(self._buffer_names)
        }
        template = self._template[0]
        template.train(self.training)

        def one(state: dict[str, Tensor], more: dict[str, Tensor], x: Tensor) -> Tensor:
            return cast(Tensor, functional_call(template, {**state, **more}, (x,)))

        batched = cast("Callable[..., Tensor]", torch.vmap(one, randomness="different"))
        return batched(parameters, buffers, rows)

    def plain_parameters(self, rows: Tensor) -> list[Tensor] | None:
        """Parameters for a training pass of our own MLP, for which there is a faster way with the same result."""
        if not self.training or rows.dim() != 3 or rows.requires_grad or not torch.is_grad_enabled():
            return None
        if not self._plain_parameters or torch.is_autocast_enabled(rows.device.type):
            return None
        parameters = self._plain_parameters
        # Other precisions are left to torch, and to its error messages.
        return parameters if parameters[0].dtype == rows.dtype else None
