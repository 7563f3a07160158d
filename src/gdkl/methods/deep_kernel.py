"""The student: a feature network, a base kernel over its features, and a noise; one a member."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from gdkl.gp import (
    NOISE_START,
    ExactPosterior,
    GPyTorchKernel,
    Marginals,
    Noise,
    Split,
    rbf_kernel,
    take_rows,
    take_targets,
)
from gdkl.methods.cost import check_cost
from gdkl.methods.data import TrainingData
from gdkl.methods.fitted import FittedModel
from gdkl.nets import MLP, Members
from gdkl.numerics import (
    DataError,
    OptionError,
    keep_freed_memory,
    limit_threads,
    tensor_bytes,
)
from gdkl.objectives import ObjectiveValue
from gdkl.training import Callback, Checkpoint, History, Schedule, generator_state, seeded, train_full_batch

MATRIX_NAME = "the deep kernel's matrix"

#: Rows that `history_` has at most, whatever the number of steps.
HISTORY_ROWS = 500


@dataclass(frozen=True)
class DeepKernelOptions:
    """How a deep kernel is built and trained.

    Attributes:
        schedule: Steps and learning rates.
        feature_net: Builds a network from the number of columns.
        base_kernel: Kernel over the features; None for a scaled RBF with one lengthscale.
        noise_start: Initial noise variance, one for all or one a member and output.
        weight_decay: On the network's parameters alone: kernel and noise have no zero to be drawn to.
        split_pool: Random splits that guided training draws before it goes through them again, in another order each
            time; None for a fresh one at every step, as published.
        momentum: Of stochastic gradient descent, which then takes Adam's place.
        kernel_rate: Learning rate of kernel and noise as a multiple of the network's.
        seed: Of the initial weights, dropout and the splits.
        callbacks: Called after each step.
        checkpoint: Where a run that may be killed keeps its state.
    """

    schedule: Schedule
    feature_net: Callable[[int], nn.Module] = MLP
    base_kernel: Kernel | None = None
    noise_start: float | Tensor = NOISE_START
    weight_decay: float = 0.0
    kernel_rate: float = 1.0
    split_pool: int | None = None
    momentum: float | None = None
    seed: int = 0
    callbacks: Sequence[Callback] = field(default=())
    checkpoint: Checkpoint | None = None


class HeldOut(NamedTuple):
    """A student and the held-out rows of a split: what an objective is made of.

    Attributes:
        q: Latent marginals q(f | x, D1), ``(members, outputs, n2)``.
        y: Targets, same shape.
        noise: The student's noise variance, ``(members, outputs)``.
    """

    q: Marginals
    y: Tensor
    noise: Tensor


class DeepKernel(nn.Module):
    """Network, kernel and noise of all members.

    Args:
        network: Turns rows ``(members, n, d)`` into features ``(members, n, p)``.
        kernel: Kernel over features, one a member and output.
        noise: Noise variance, one a member and output.
    """

    def __init__(self, network: Members, kernel: GPyTorchKernel, noise: Noise):
        super().__init__()
        self.network = network
        self.kernel = kernel
        self.noise = noise

    def split_marginals(self, data: TrainingData, split: Split) -> HeldOut:
        """What the student believes about the held-out rows given the observed ones.

        The network sees all rows once; only K₁₁, K₂₁ and a diagonal are formed.
        """
        noise = self.noise()
        q = self.marginals(data.rows, data.targets, split, noise)
        return HeldOut(q, take_targets(data.targets, split.held_out), noise)

    def marginals(self, rows: Tensor, targets: Tensor, split: Split, noise: Tensor) -> Marginals:
        """The same beliefs where some of the held-out rows may have no targets.

        Args:
            rows: All rows, those with targets first, ``(members, n + more, d)``.
            targets: ``(members, outputs, n)``.
            split: Indices into the rows; those observed have targets.
            noise: The student's noise variance, ``(members, outputs)``.
        """
        observed = take_targets(targets, split.observed)
        return self.kernel.split_posterior(self._features(rows, split), observed, noise, name=MATRIX_NAME)

    def both_ways(self, rows: Tensor, targets: Tensor, split: Split, noise: Tensor) -> Marginals:
        """`marginals` of the held-out rows given the observed ones, and after them of those given the others.

        The network, which is most of a step on images, sees the rows once for both.
        """
        features = self._features(rows, split)
        ways = [features, features.roll(-split.observed.shape[-1], dims=-2)]
        given = [take_targets(targets, part) for part in split]
        found = self.kernel.split_posteriors(ways, given, noise, name=MATRIX_NAME)
        return Marginals(*(torch.cat(values, dim=-1) for values in zip(*found, strict=True)))

    def _features(self, rows: Tensor, split: Split) -> Tensor:
        # Sorting the rows, not the features, leaves nothing to differentiate.
        return self.network(take_rows(rows, torch.cat(split, dim=-1))).unsqueeze(-3)

    def gram(self, data: TrainingData) -> Tensor:
        """Kernel over all training rows, ``(members, outputs, n, n)``."""
        return self.kernel.leading(self.network(data.rows).unsqueeze(-3), data.n)


def build_deep_kernel(data: TrainingData, options: DeepKernelOptions) -> DeepKernel:
    """Make the members' networks in the precision of the rows, kernels and noises in that of the targets."""
    networks = [options.feature_net(data.rows.shape[-1]).to(data.rows) for _ in range(data.members)]
    shape = (data.members, data.outputs)
    kernel = rbf_kernel(shape) if options.base_kernel is None else batch_kernel(options.base_kernel, shape)
    algebra = GPyTorchKernel(kernel).to(data.targets), Noise(shape, options.noise_start).to(data.targets)
    model = DeepKernel(Members(networks).to(data.rows), *algebra)
    check_kernel(model.kernel, check_features(model.network, data.rows)[:, :2])
    return model


@torch.no_grad()
def check_kernel(kernel: GPyTorchKernel, features: Tensor) -> None:
    """Refuse a base kernel that does not take the features, say for another number of them."""
    try:
        kernel.gram(features.unsqueeze(-3))
    except (RuntimeError, ValueError, IndexError) as error:
        raise DataError(f"base_kernel failed on {features.shape[-1]} features: {str(error).splitlines()[0]}") from error


def batch_kernel(kernel: Kernel, shape: tuple[int, ...]) -> Kernel:
    """A copy of a user's kernel with independent parameters for each member and output."""
    kernel = deepcopy(kernel)
    if len(kernel.batch_shape) > 0:
        raise OptionError(
            f"base_kernel has batch shape {tuple(kernel.batch_shape)}: pass it without one, it is repeated for "
            "each output."
        )
    for part in kernel.modules():
        if not isinstance(part, Kernel):
            continue
        part.batch_shape = torch.Size(shape)
        for parameter in part.parameters(recurse=False):
            parameter.data = parameter.data.expand(*shape, *parameter.shape).clone()
    return kernel


@torch.no_grad()
def check_features(network: nn.Module, rows: Tensor) -> Tensor:
    """Features of the rows in evaluation; refuses a network whose output no Gaussian process could use.

    Raises:
        DataError: If the features are not 2-D for each member, or not finite.
    """
    training = network.training
    network.eval()
    try:
        features = network(rows)
    except (RuntimeError, TypeError, AttributeError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"feature_net failed on {rows.shape[1]} rows of {rows.shape[-1]} columns: {reason}") from error
    finally:
        network.train(training)
    if features.dim() != 3 or features.shape[:2] != rows.shape[:2] or not features.is_floating_point():
        raise DataError(
            f"feature_net must return one row of numbers a row of X, shape ({rows.shape[1]}, p); got "
            f"{tuple(features.shape[1:])} of {str(features.dtype).removeprefix('torch.')}."
        )
    if not bool(torch.isfinite(features).all()):
        raise DataError("feature_net returned NaN or infinite features: check its weights and the scale of X.")
    return features


def train_deep_kernel(
    data: TrainingData,
    options: DeepKernelOptions,
    make_loss: Callable[[DeepKernel], Callable[[int], ObjectiveValue]],
    *,
    guided: bool,
    rows_a_step: int | None = None,
    more_bytes: int = 0,
    start: Callable[[DeepKernel], None] | None = None,
    finish: Callable[[DeepKernel, Tensor], ExactPosterior] | None = None,
) -> FittedModel:
    """Build a deep kernel, train it on an objective, and condition it on all rows.

    Args:
        data: Scaled training data.
        options: How to build and train.
        make_loss: From the deep kernel to its objective at each step.
        guided: Whether a step conditions one half on the other, or takes the evidence of all rows: what it costs.
        rows_a_step: Rows that a step sees, where that is not all of them.
        more_bytes: Memory that a step takes besides its matrices.
        start: Changes the deep kernel before training, where its first values matter.
        finish: From the trained deep kernel and its features of all rows to the posterior; None for targets whose
            noise is the learned one alone.
    """
    rows_a_step = data.n if rows_a_step is None else rows_a_step
    check_cost(data, options.schedule.n_iter, guided=guided, rows_a_step=rows_a_step, more_bytes=more_bytes)
    device = data.rows.device
    with ExitStack() as alone:
        if device.type == "cpu":
            alone.enter_context(limit_threads(rows_a_step))
            largest = tensor_bytes(rows_a_step // 2, rows_a_step, dtype=data.targets.dtype)
            alone.enter_context(keep_freed_memory(largest if guided else 2 * largest))
        with seeded(options.seed, device):
            model = build_deep_kernel(data, options)
            if start is not None:
                start(model)
            stochastic = draws_random_numbers(model.network, data.rows)
        if stochastic or options.checkpoint is not None:
            # Dropout draws from the global generator at every step, so the fit needs it for itself to be repeatable.
            alone.enter_context(seeded(options.seed, device))
        groups = [
            {"params": list(model.network.parameters()), "weight_decay": options.weight_decay},
            {"params": [*model.kernel.parameters(), *model.noise.parameters()], "rate": options.kernel_rate},
        ]
        history = History(every=max(1, -(-options.schedule.n_iter // HISTORY_ROWS)))
        outcome = train_full_batch(
            model,
            [group for group in groups if group["params"]],
            make_loss(model),
            options.schedule,
            [history, *options.callbacks],
            extra_values=lambda: {"noise": model.noise()},
            momentum=options.momentum,
            checkpoint=options.checkpoint,
        )
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    check_features(model.network, data.rows)
    with torch.no_grad():
        features = model.network(data.rows)
        if finish is not None:
            posterior = finish(model, features)
        else:
            posterior = ExactPosterior.condition(model.kernel, features, data.targets, model.noise(), name=MATRIX_NAME)
    return FittedModel(model.network, posterior, history.rows, outcome)


@torch.no_grad()
def draws_random_numbers(network: nn.Module, rows: Tensor) -> bool:
    """Whether the network is random in training, as with dropout; tried on a copy, which batch norm would change."""
    before = generator_state(rows.device)
    deepcopy(network).train()(rows)
    return generator_state(rows.device) != before
