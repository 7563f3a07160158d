"""A step recorded once on a GPU and replayed: Python is out of the way, and no small kernel waits for its launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gdkl.objectives import ObjectiveValue

#: Steps taken as they are before one is recorded: libraries set themselves up in their first calls.
_WARM_UP = 3


class GraphedStep:
    """An objective and its gradients as one CUDA graph.

    What comes back has no graph of its own: gradients are in place already. Inputs of another shape than the recorded
    ones, such as a last short batch, are computed as they are.

    Args:
        loss: From tensors to the objective; the same operations whatever their values, and nothing read off the device.
        parameters: What is learned.
    """

    def __init__(self, loss: Callable[..., ObjectiveValue], parameters: Sequence[Tensor]):
        self._loss = loss
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._gradients: list[Tensor | None] = []
        self._summary = torch.empty(0)
        self._names: list[str] = []

    def __call__(self, *inputs: Tensor) -> ObjectiveValue:
        """The objective of one step; its gradients are those of the sum over members."""
        if self._calls < _WARM_UP:
            self._calls += 1
            return self._beside(inputs)
        if self._graph is None:
            self._graph = self._record(inputs)
        elif [value.shape for value in inputs] != [value.shape for value in self._inputs]:
            return self._as_it_is(inputs)
        for kept, value in zip(self._inputs, inputs, strict=True):
            kept.copy_(value)
        self._graph.replay()
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        # The next replay writes to the same memory.
        value, *terms = self._summary.clone()
        return ObjectiveValue(value, dict(zip(self._names, terms, strict=True)))

    def _as_it_is(self, inputs: Sequence[Tensor]) -> ObjectiveValue:
        for parameter in self._parameters:
            parameter.grad = None
        objective = self._loss(*inputs)
        objective.value.sum().backward()
        return ObjectiveValue(objective.value.detach(), {name: term.detach() for name, term in objective.terms.items()})

    def _beside(self, inputs: Sequence[Tensor]) -> ObjectiveValue:
        """On another stream, as a step must be taken before it can be recorded."""
        stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            objective = self._as_it_is(inputs)
        current.wait_stream(stream)
        return objective

    def _record(self, inputs: Sequence[Tensor]) -> torch.cuda.CUDAGraph:
        self._inputs = [value.clone() for value in inputs]
        for parameter in self._parameters:
            parameter.grad = None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            objective = self._loss(*self._inputs)
            objective.value.sum().backward()
            self._summary = torch.stack(
                [objective.value.detach(), *(term.detach() for term in objective.terms.values())]
            )
        self._names = list(objective.terms)
        self._gradients = [parameter.grad for parameter in self._parameters]
        return graph
