"""An `MLP`'s training pass with its gradient written out: what autograd does, in half as many operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gdkl.nets.mlp import MLP
from gdkl.numerics import for_each

#: From this many rows on members are computed one by one on a CPU, in its cache and shared by threads.
_ROWS_APART = 64


def is_plain(network: nn.Module) -> bool:
    """Whether a network is our own MLP as it was built: linear layers, ReLU between them, and no hooks."""
    if type(network) is not MLP or not all(map(_silent, (network, network.layers, *network.layers))):
        return False
    linear, between = list(network.layers)[::2], list(network.layers)[1::2]
    return (
        all(type(layer) is nn.Linear and isinstance(layer.bias, Tensor) for layer in linear)
        and all(type(layer) is nn.ReLU for layer in between)
        and len(linear) == len(between) + 1
    )


def _silent(module: nn.Module) -> bool:
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return not any(hooks)


def mlp_forward(rows: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """What each layer gives, the features last; members of a batch lead where the parameters have them."""
    outputs: list[Tensor] = []
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        x = outputs[-1].relu_() if outputs else rows
        stacked = weight.dim() == 3
        outputs.append(torch.baddbmm(bias.unsqueeze(1), x, weight.mT) if stacked else torch.addmm(bias, x, weight.mT))
    return outputs


def mlp_backward(rows: Tensor, hidden: Sequence[Tensor], weights: Sequence[Tensor], gradient: Tensor) -> list[Tensor]:
    """Gradients of weights and biases, in the order of the layers."""
    gradients: list[Tensor] = []
    for index in reversed(range(len(weights))):
        x = hidden[index - 1] if index else rows
        gradients += [gradient.sum(dim=-2), gradient.mT @ x]
        if index:
            # ReLU's output is positive where its input was.
            gradient = cast(Any, torch.ops.aten).threshold_backward(gradient @ weights[index], x, 0)
    return gradients[::-1]


class _Pass(Function):
    """See `mlp_pass`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, *parameters: Tensor) -> Tensor:
        members = len(rows)
        stacked = parameters[0].dim() == 3
        ctx.apart = stacked and rows.device.type == "cpu" and rows.shape[1] >= _ROWS_APART
        if ctx.apart:
            parts = for_each(members, lambda index: mlp_forward(rows[index], [value[index] for value in parameters]))
            features = torch.stack([part[-1] for part in parts])
        else:
            parts = [mlp_forward(rows if stacked else rows[0], parameters)]
            features = parts[0][-1] if stacked else parts[0][-1].unsqueeze(0)
        ctx.save_for_backward(rows, *parameters[::2], *(value for part in parts for value in part[:-1]))
        return features

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        rows, *saved = cast("tuple[Tensor, ...]", ctx.saved_tensors)
        layers = (len(ctx.needs_input_grad) - 1) // 2
        weights, hidden, gradient = saved[:layers], saved[layers:], gradients[0]
        if not ctx.apart:
            stacked = weights[0].dim() == 3
            rows, gradient = (rows, gradient) if stacked else (rows[0], gradient[0])
            return None, *mlp_backward(rows, hidden, weights, gradient)

        def member(index: int) -> list[Tensor]:
            start = index * (layers - 1)
            own = [weight[index] for weight in weights]
            return mlp_backward(rows[index], hidden[start : start + layers - 1], own, gradient[index])

        parts = for_each(len(rows), member)
        return None, *(torch.stack(values) for values in zip(*parts, strict=True))


def mlp_pass(rows: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Features ``(members, n, p)`` of rows ``(members, n, d)``; gradients flow to the parameters alone, once.

    Args:
        rows: One batch of rows a member.
        parameters: Weight and bias of each layer in turn, stacked along a first dimension of members; as they are for
            one member.

    Example:
        >>> net = MLP(3, (4, 2))
        >>> rows = torch.zeros(1, 5, 3)
        >>> torch.equal(mlp_pass(rows, list(net.parameters()))[0], net(rows[0]))
        True
    """
    return cast(Tensor, _Pass.apply(rows, *parameters))
