"""A guided step of the default student as one function: network, split posterior, objective and all their gradients.

The same as the rooms below do one after the other under autograd. One graph node is left of some thirty, and on a CPU a
member's step is one piece: its numbers stay in the cache, and members are shared by threads that meet once a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gdkl.gp import (
    Marginals,
    Split,
    members_apart,
    split_posterior_backward,
    split_posterior_forward,
    take_rows,
    take_targets,
)
from gdkl.methods.data import TrainingData
from gdkl.methods.deep_kernel import MATRIX_NAME, DeepKernel
from gdkl.methods.halved_step import HalvedProblem, halved_step
from gdkl.nets import mlp_backward, mlp_forward
from gdkl.numerics import for_each
from gdkl.objectives import ObjectiveValue, guided_terms

#: Beyond this many rows torch's own threads share the long operations as well, and need less memory.
_MOST_HALVED_ROWS = 2000


class _Problem(NamedTuple):
    """What a step is about, for all members or, less its first dimension, for one.

    Attributes:
        rows: Observed, then held-out, rows, ``(members, n, d)``.
        targets: In the same order, ``(members, outputs, n)``.
        p_mean: The guide's means, ``(members, outputs, n2)``.
        p_variance: Its variances.
    """

    rows: Tensor
    targets: Tensor
    p_mean: Tensor
    p_variance: Tensor


def _values_and_gradients(problem: _Problem, beta: float, parameters: Sequence[Tensor]) -> list[Tensor]:
    """ELL and KL, and the gradients of ELL + β·KL by all parameters: lengthscale, scale, noise, and the network's.

    Members and outputs are dimensions of all tensors, or members of none, or neither.
    """
    rows, targets, p_mean, p_variance = problem
    lengthscale, scale, noise, *network = parameters
    n1 = targets.shape[-1] - p_mean.shape[-1]
    outputs = mlp_forward(rows, network)
    # Outputs share a member's features.
    shared = scale.dim() == rows.dim() - 1
    features = outputs[-1].unsqueeze(-3) if shared else outputs[-1]
    q, kept = split_posterior_forward(features, targets[..., :n1], lengthscale, scale, noise, name=MATRIX_NAME)
    ell, kl, of_mean, of_variance, of_noise = guided_terms(
        q, Marginals(p_mean, p_variance), targets[..., n1:], noise, beta
    )
    of_features, of_lengthscale, of_scale, also_of_noise = split_posterior_backward(kept, of_mean, of_variance)
    of_output = (of_features.squeeze(-3) if shared else of_features).to(rows.dtype)
    of_network = mlp_backward(rows, outputs[:-1], network[::2], of_output)
    return [ell, kl, of_lengthscale, of_scale, of_noise.add_(also_of_noise), *of_network]


def is_halved(rows: Tensor, targets: Tensor) -> bool:
    """Whether a member's step is taken in two halves that two threads can share.

    Args:
        rows: Shape ``(members, n, d)``.
        targets: Shape ``(members, outputs, n)``.
    """
    few = members_apart(rows, rows.shape[1] // 2) and rows.shape[1] <= _MOST_HALVED_ROWS
    return few and targets.shape[1] == 1 and rows.dim() == 3


def _in_halves(problem: _Problem, beta: float, stacked: bool, parameters: Sequence[Tensor]) -> list[Tensor] | None:
    """`_values_and_gradients` of members with one output on a CPU; None if numbers have left their range.

    Arrays are at hand before the members part: to pick a member from one is ten times as fast as from a tensor, and
    does not make the other threads wait for the interpreter.
    """
    members = len(problem.rows)
    lengthscale, scale, noise = kernel = [value.reshape(members).tolist() for value in parameters[:3]]
    if not all(0 < number < math.inf for numbers in kernel for number in numbers):
        return None
    rows, *others = (value.numpy() for value in problem)
    network = [value.detach().numpy() if stacked else value.detach().numpy()[None] for value in parameters[3:]]
    gradients = [np.empty_like(value) for value in network]

    def piece(member: int) -> tuple[float, ...]:
        own = HalvedProblem(
            rows[member],
            *(value[member, 0] for value in others),
            beta=beta,
            lengthscale=lengthscale[member],
            scale=scale[member],
            noise=noise[member],
            network=[value[member] for value in network],
            name=MATRIX_NAME,
        )
        found = halved_step(own, alone=members > 1)
        for gradient, value in zip(gradients, found.network, strict=True):
            gradient[member] = value
        return found[:5]

    numbers = parameters[0].new_tensor(for_each(members, piece)).unbind(dim=1)
    of_kernel = [value.view_as(parameter) for value, parameter in zip(numbers[2:], parameters, strict=False)]
    return [*numbers[:2], *of_kernel, *(torch.from_numpy(value if stacked else value[0]) for value in gradients)]


class _GuidedStep(Function):
    """See `guided_step`."""

    @staticmethod
    def forward(
        ctx: Any, problem: _Problem, beta: float, stacked: bool, *parameters: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        members, outputs = problem.targets.shape[:2]
        n1 = problem.targets.shape[-1] - problem.p_mean.shape[-1]
        halved = is_halved(problem.rows, problem.targets)
        in_halves = _in_halves(problem, beta, stacked, parameters) if halved else None
        if in_halves is not None:
            ell, kl, *gradients = in_halves
        elif members == 1 or members_apart(problem.rows, n1):
            # One output is no batch either: plain matrix products are called faster than batched ones.
            alone = outputs == 1

            def piece(member: int) -> list[Tensor]:
                rows, *others = (value[member] for value in problem)
                kernel = [value[member, 0] if alone else value[member] for value in parameters[:3]]
                network = [value[member] for value in parameters[3:]] if stacked else parameters[3:]
                own = _Problem(rows, *(value[0] if alone else value for value in others))
                return _values_and_gradients(own, beta, [*kernel, *network])

            joined = [
                values[0].unsqueeze(0) if len(values) == 1 else torch.stack(values)
                for values in zip(*for_each(members, piece), strict=True)
            ]
            ell, kl = joined[:2]
            gradients = [value.unsqueeze(1) for value in joined[2:5]] if alone else joined[2:5]
            gradients += joined[5:] if stacked else [value.squeeze(0) for value in joined[5:]]
        else:
            ell, kl, *gradients = _values_and_gradients(problem, beta, parameters)
        ctx.stacked = stacked
        ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(ell, kl)
        return torch.add(ell, kl, alpha=beta), ell, kl

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        saved, weights = cast("tuple[Tensor, ...]", ctx.saved_tensors), gradients[0]
        # Training takes the sum over members, so the gradients are those already there.
        if not bool((weights == 1).all()):
            saved = tuple(
                value * (weights if index >= 3 and not ctx.stacked else _along_first(weights, value))
                for index, value in enumerate(saved)
            )
        return None, None, None, *saved


def _along_first(weights: Tensor, value: Tensor) -> Tensor:
    """Weights of members as they multiply a tensor of theirs."""
    return weights.reshape(-1, *(1 for _ in value.shape[1:]))


def guided_step(
    model: DeepKernel, data: TrainingData, split: Split, p: Marginals, beta: float
) -> ObjectiveValue | None:
    """The guided objective of a student with our own network and kernel; None for any other student.

    Its gradients are computed with it, so it is for training alone; they can be asked for once.

    Args:
        model: The student.
        data: What it is trained on.
        split: Observed and held-out rows.
        p: The guide's marginals on the held-out rows.
        beta: Weight of the KL term.
    """
    network = model.network.plain_parameters(data.rows)
    kernel = model.kernel.scaled_rbf()
    if network is None or kernel is None or kernel[1].shape[-1] != 1:
        return None
    scale, lengthscale = kernel
    order = torch.cat(split, dim=-1)
    problem = _Problem(take_rows(data.rows, order), take_targets(data.targets, order), *p)
    value, ell, kl = cast(
        "tuple[Tensor, ...]",
        _GuidedStep.apply(problem, beta, model.network.count > 1, lengthscale, scale, model.noise(), *network),
    )
    return ObjectiveValue(value, {"ell": ell, "kl": kl})
