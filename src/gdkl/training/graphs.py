"""A step captured once as a CUDA graph and replayed: no Python between its kernels, no launch to wait for.

By hand, because `torch.cuda.make_graphed_callables` captures forward and backward passes of modules as two graphs with
autograd between them, takes and returns tensors alone, and has no way out for inputs of another shape. Here loss, named
terms and all gradients are one graph, and a short last batch is computed without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gdkl.objectives import ObjectiveValue
from gdkl.training.step import detached

#: Steps taken without a graph before one is captured: libraries initialise themselves in their first calls.
_WARM_UP = 3


class GraphedStep:
    """An objective and its gradients as one CUDA graph.

    Inputs of another shape than the captured ones, such as a last short batch, are computed without the graph.

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
            return self._on_side_stream(inputs)
        if self._graph is None:
            self._graph = self._capture(inputs)
        elif [value.shape for value in inputs] != [value.shape for value in self._inputs]:
            return detached(self._compute(inputs))
        for kept, value in zip(self._inputs, inputs, strict=True):
            kept.copy_(value)
        self._graph.replay()
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        # The next replay writes to the same memory.
        value, *terms = self._summary.clone()
        return ObjectiveValue(value, dict(zip(self._names, terms, strict=True)))

    def _compute(self, inputs: Sequence[Tensor]) -> ObjectiveValue:
        for parameter in self._parameters:
            parameter.grad = None
        objective = self._loss(*inputs)
        objective.value.sum().backward()
        return objective

    def _on_side_stream(self, inputs: Sequence[Tensor]) -> ObjectiveValue:
        """As the steps before a capture must be taken."""
        stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            objective = self._compute(inputs)
        current.wait_stream(stream)
        return detached(objective)

    def _capture(self, inputs: Sequence[Tensor]) -> torch.cuda.CUDAGraph:
        self._inputs = [value.clone() for value in inputs]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            objective = detached(self._compute(self._inputs))
            self._summary = torch.stack([objective.value, *objective.terms.values()])
        self._names = list(objective.terms)
        self._gradients = [parameter.grad for parameter in self._parameters]
        return graph
