"""The recursion read plainly in torch: whole arrays, no loop over pairs, no care beyond a clamp.

What anyone would write first, and what `kernel_cpu.py` measures ours against.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


def relu(k: Tensor, q1: Tensor, q2: Tensor) -> Tensor:
    """E[max(u, 0)·max(v, 0)] by the arc-cosine formula."""
    s = (q1 * q2).sqrt()
    c = (k / s).clamp(-1, 1)
    return s / (2 * math.pi) * ((1 - c * c).sqrt() + (math.pi - c.acos()) * c)


def dense(x1: Tensor, x2: Tensor, hidden_layers: int = 3, w: float = 1.6, b: float = 0.2) -> Tensor:
    """The NNGP of a fully connected ReLU network."""
    k = w * (x1 @ x2.T) / x1.shape[1] + b
    q1 = w * x1.square().mean(1)[:, None] + b
    q2 = w * x2.square().mean(1)[None, :] + b
    for _ in range(hidden_layers):
        k = w * relu(k, q1, q2) + b
        q1, q2 = w * q1 / 2 + b, w * q2 / 2 + b
    return k


def _conv(k: Tensor, stride: int, w: float, b: float) -> Tensor:
    """A 3 × 3 convolution with "same" padding, for arrays of pixels in the last two axes."""
    shape = k.shape
    low = 1 if stride == 1 else 0
    padded = functional.pad(k.reshape(-1, 1, *shape[-2:]), (low, 1, low, 1))
    k = functional.avg_pool2d(padded, 3, stride)
    return w * k.reshape(*shape[:-2], *k.shape[-2:]) + b


def wide_resnet(x1: Tensor, x2: Tensor, blocks: int = 4, w: float = 5.0, b: float = 0.2) -> Tensor:
    """The NNGP of the paper's wide residual network: three groups, strides 1, 2, 2, flattened."""
    states = [
        torch.einsum("nchw,mchw->nmhw", x1, x2) / x1.shape[1],
        x1.square().mean(1)[:, None],
        x2.square().mean(1)[None, :],
    ]

    def conv(arrays: list[Tensor], stride: int) -> list[Tensor]:
        return [_conv(array, stride, w, b) for array in arrays]

    def activate(arrays: list[Tensor]) -> list[Tensor]:
        return [relu(*arrays), arrays[1] / 2, arrays[2] / 2]

    states = conv(states, 1)
    for group_stride in (1, 2, 2):
        for block in range(blocks):
            stride = group_stride if block == 0 else 1
            main = conv(activate(conv(activate(states), stride)), 1)
            shortcut = conv(states, stride) if block == 0 else states
            states = [a + b_ for a, b_ in zip(main, shortcut, strict=True)]
    return states[0].mean(dim=(-2, -1))


def conv_net(x1: Tensor, x2: Tensor, layers: int = 3, w: float = 2.0, b: float = 0.1) -> Tensor:
    """The NNGP of some 3 × 3 convolutions with ReLU, flattened."""
    k = torch.einsum("nchw,mchw->nmhw", x1, x2) / x1.shape[1]
    q1, q2 = x1.square().mean(1)[:, None], x2.square().mean(1)[None, :]
    for _ in range(layers):
        k, q1, q2 = (_conv(array, 1, w, b) for array in (k, q1, q2))
        k, q1, q2 = relu(k, q1, q2), q1 / 2, q2 / 2
    return k.mean(dim=(-2, -1))
