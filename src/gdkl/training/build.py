"""Students from options and data, with the checks that a user's network and kernel must pass."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from gdkl.gp import NOISE_START, GPyTorchKernel, InducingPoints, Noise, cluster_centres, rbf_kernel, start_kernel
from gdkl.nets import Members, WithHead
from gdkl.numerics import DataError, OptionError
from gdkl.training.batches import BatchSource
from gdkl.training.data import TrainingData
from gdkl.training.options import StudentOptions
from gdkl.training.randomness import generator_state
from gdkl.training.student import DeepKernel, SparseDeepKernel

#: Where the noise starts with inducing points: near all of the targets' variance. q(u) starts at its prior, and with
#: the small noise that exact training starts from, the steepest descent would be to shrink the kernel to nothing.
SPARSE_NOISE_START = 0.5

#: Rows whose features the inducing points start from: k-means needs several for each centre.
_START_ROWS, _START_ROWS_PER_POINT = 2000, 10

#: Rows that a network sees at a time where only its features are needed.
_CHUNK = 512


def build_deep_kernel(data: TrainingData, options: StudentOptions) -> DeepKernel:
    """Make the members' networks in the precision of the rows, kernels and noises in that of the targets."""
    network = _networks(data.rows, data.members, options)
    kernel, noise = _kernel_and_noise((data.members, data.outputs), options, NOISE_START, data.targets)
    check_kernel(kernel, check_features(network, data.rows)[:, :2])
    return DeepKernel(network, kernel, noise)


def build_sparse_deep_kernel(
    source: BatchSource,
    outputs: int,
    options: StudentOptions,
    read_features: Callable[[Tensor], Tensor] | None = None,
) -> SparseDeepKernel:
    """Make the members' networks, and start kernel and inducing points from the features of some rows.

    Args:
        source: Where rows come from.
        outputs: Number of latent functions.
        options: How the student is built.
        read_features: From what the network returns to the features; None where they are what it returns.

    Raises:
        DataError: If there are more inducing points than rows, or a part does not fit the rows.
    """
    if options.n_inducing > source.rows:
        raise DataError(
            f"n_inducing={options.n_inducing} is more than the {source.rows} rows that are trained on (others may be "
            "kept for the noise): use fewer inducing points, or inference='exact' where there is one."
        )
    wanted = max(_START_ROWS, _START_ROWS_PER_POINT * options.n_inducing)
    rows = source.sample(min(wanted, source.rows), options.seed).rows
    network = _networks(rows, options.members, options)
    like = torch.empty(0, dtype=options.algebra, device=rows.device)
    kernel, noise = _kernel_and_noise((options.members, outputs), options, SPARSE_NOISE_START, like)
    check_features(network, rows[:64].expand(options.members, -1, -1))
    features = training_features(network, rows.expand(options.members, *rows.shape)).to(like)
    if read_features is not None:
        features = read_features(features)
    check_kernel(kernel, features[:, :2])
    start_kernel(kernel, features, output_scale=1.0)
    points = InducingPoints(cluster_centres(features, options.n_inducing, options.seed), outputs)
    return SparseDeepKernel(network, kernel, noise, points)


def build_network_with_head(data: TrainingData, options: StudentOptions, outputs: int) -> Members:
    """Make the members' networks, each with a linear layer from its features to so many outputs."""
    networks: list[nn.Module] = []
    for _ in range(data.members):
        network = options.feature_net(data.rows.shape[-1]).to(data.rows)
        features = check_features(Members([network]), data.rows[:1])
        head = nn.Linear(features.shape[-1], outputs, dtype=torch.float32).to(features)
        networks.append(WithHead(network, head))
    return Members(networks).to(data.rows.device)


def _networks(rows: Tensor, members: int, options: StudentOptions) -> Members:
    return Members([options.feature_net(rows.shape[-1]).to(rows) for _ in range(members)]).to(rows)


def _kernel_and_noise(
    shape: tuple[int, int], options: StudentOptions, noise_start: float, like: Tensor
) -> tuple[GPyTorchKernel, Noise]:
    kernel = rbf_kernel(shape) if options.base_kernel is None else batch_kernel(options.base_kernel, shape)
    start = noise_start if options.noise_start is None else options.noise_start
    return GPyTorchKernel(kernel).to(like), Noise(shape, start, options.noise_floor).to(like)


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
def training_features(network: Members, rows: Tensor) -> Tensor:
    """Features of rows ``(members, n, d)`` as training sees them, which an untrained batch norm makes very different.

    Computed by a copy, whose statistics are discarded.
    """
    copy = deepcopy(network).train()
    return torch.cat([copy(part) for part in rows.split(_CHUNK, dim=1)], dim=1)


@torch.no_grad()
def check_kernel(kernel: GPyTorchKernel, features: Tensor) -> None:
    """Refuse a base kernel that does not take the features, such as one for another number of them."""
    try:
        kernel.gram(features.unsqueeze(-3))
    except (RuntimeError, ValueError, IndexError) as error:
        raise DataError(f"base_kernel failed on {features.shape[-1]} features: {str(error).splitlines()[0]}") from error


@torch.no_grad()
def check_features(network: nn.Module, rows: Tensor) -> Tensor:
    """Features of the rows in evaluation mode; refuses a network whose output no Gaussian process could use.

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
            f"feature_net must return one row of numbers per row of X, shape ({rows.shape[1]}, p); got "
            f"{tuple(features.shape[1:])} of {str(features.dtype).removeprefix('torch.')}."
        )
    if not bool(torch.isfinite(features).all()):
        raise DataError("feature_net returned NaN or infinite features: check its weights and the scale of X.")
    return features


@torch.no_grad()
def draws_random_numbers(network: nn.Module, rows: Tensor) -> bool:
    """Whether the network is random in training, as with dropout; tried on a copy, which batch norm would change."""
    before = generator_state(rows.device)
    deepcopy(network).train()(rows)
    return generator_state(rows.device) != before
